"""`python -m subtext.policy.rank RUN`: one of the processes that `subtext.policy.launch` starts."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from subtext.errors import SubtextError
from subtext.policy.launch import TellLog, end_with_listener, tell_error, tell_progress
from subtext.policy.ranks import writes_records
from subtext.policy.train import train_in_this_process
from subtext.progress import nobody
from subtext.run_dir import RunDir


def main(path: str) -> int:
    """Train the run at `path` with the other ranks; return the exit code."""
    end_with_listener()
    main_rank = writes_records()
    if main_rank:
        library = logging.getLogger("subtext")
        library.addHandler(TellLog())
        library.setLevel(logging.INFO)
    try:
        train_in_this_process(RunDir(Path(path)), tell_progress if main_rank else nobody)
    except SubtextError as error:
        tell_error(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
