"""Flow `subtext-publish`: repeat the uploads of a finished run that have not landed. No training.

From the checkout: `python -m flows.publish_flow --run runs/<id>`.
"""

from __future__ import annotations

from prefect import flow

from tasks.publishing import check_hub, require_all, upload_missing, write_card
from tasks.tracking import finish


@flow(name="subtext-publish")
def publish_flow(run: str) -> str:
    """Upload what is missing of `run`, a run directory, and pin the commits in MLflow."""
    check_hub(run)
    write_card(run)
    uploads = upload_missing(run)
    finish(run)
    require_all(run, uploads)
    return run


if __name__ == "__main__":
    from flows.command_line import publish_main

    raise SystemExit(publish_main(publish_flow))
