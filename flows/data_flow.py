"""Flow `subtext-data`: fetch a corpus, measure the delivery of its clips, choose its Pivot Set.

Deployed as `subtext-data/mustard` (prefect.yaml). Without a server:
`python -m flows.data_flow --root data/demo`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from prefect import flow
from pydantic import Field

from tasks.corpus import fetch, measure, pivot, validate

Source = Literal["none", "mustard"]
Workers = Annotated[int, Field(ge=0)]


@flow(name="subtext-data")
def data_flow(
    root: str = "", source: Source = "none", allow_missing: bool = False, n_workers: Workers = 0
) -> str:
    """Make the clips in `root` ready for training; return the folder.

    `source`: the corpus to fetch first. `allow_missing`: go on without the clips that can't be
    measured, which are listed. `n_workers`: processes that measure; 0: as many as cores are free.
    """
    if source != "none":
        fetch(root)
    measure(root, allow_missing, n_workers)
    # A Pivot Set chosen by older prosody is refused, so a new one comes before the check.
    pivot(root)
    return validate(root, allow_missing)


if __name__ == "__main__":
    from flows.command_line import data_main

    raise SystemExit(data_main(data_flow))
