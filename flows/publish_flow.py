"""Flow `subtext-publish`: finish a judged run. No training, no judging.

MLflow gets what it lacks of the run, be it all of it, and the Hub the uploads that have not landed;
on another machine than the one that trained it, too. From the checkout:
`python -m flows.publish_flow --run runs/<id>`.
"""

from __future__ import annotations

from prefect import flow

from tasks.publishing import check_hub, require_all, upload_missing, write_card
from tasks.tracking import finish, log_results, pass_gate_once, register, tracked


@flow(name="subtext-publish")
def publish_flow(run: str) -> str:
    """Track, register and upload what is missing of `run`, a run directory; pin the commits."""
    check_hub(run)
    with tracked(run):
        write_card(run)
        log_results(run)
        register(run)
        pass_gate_once(run)
        uploads = upload_missing(run)
        finish(run)
        require_all(run, uploads)
    return run


if __name__ == "__main__":
    from flows.command_line import publish_main

    raise SystemExit(publish_main(publish_flow))
