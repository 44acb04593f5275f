"""Start a flow from the checkout without a server. Bad input is refused before Prefect starts.

Exit codes: 0 Completed, 1 the flow run did not complete, 2 refused, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from subtext.config import Overrides
from subtext.errors import SubtextError
from subtext.profiles import Profile, parse_assignments, resolve

Flow = Callable[..., Any]

_REFUSED = 2
_INTERRUPTED = 130
# Prefect starts its own server for the length of the run; its limit of 20 s is short on two cores.
_PREFECT_DEFAULTS = {
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}


def train_main(train_flow: Flow, arguments: Sequence[str] | None = None) -> int:
    """Parse, validate, run the flow `subtext` and print the summary of the run."""
    parser = argparse.ArgumentParser(
        prog="python -m flows.train_flow",
        description="Train, judge, register and publish, without a Prefect server to start first.",
    )
    parser.add_argument(
        "--profile", default=Profile.t4.value, metavar="NAME",
        help=f"starting point: {', '.join(Profile)} (default {Profile.t4})",
    )  # fmt: skip
    parser.add_argument(
        "--set", action="append", default=[], dest="assignments", metavar="SECTION.FIELD=VALUE",
        help="turn one knob, for example grpo.max_steps=3; repeatable "
        "(`subtext config fields` lists them)",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    try:
        overrides = parse_assignments(options.assignments)
        _refuse_early(options.profile, overrides)
    except SubtextError as error:
        return _refuse(error)
    return _run(train_flow, Profile(options.profile), Overrides(**overrides))


def publish_main(publish_flow: Flow, arguments: Sequence[str] | None = None) -> int:
    """Parse, find the run, run the flow `subtext-publish` and print the summary of the run."""
    parser = argparse.ArgumentParser(
        prog="python -m flows.publish_flow",
        description="Repeat the uploads of a finished run that have not landed; trains nothing.",
    )
    parser.add_argument("--run", required=True, help="run directory, or the id of one in runs/")
    options = parser.parse_args(arguments)
    from subtext.publishing.hub import check_access, require_token
    from subtext.publishing.uploads import check_finished
    from subtext.run_dir import load_config
    from subtext.summary import find_run

    try:
        run = find_run(options.run)
        publish = load_config(run).publish
        check_finished(run)
        check_access(publish, require_token(publish, os.environ))
    except SubtextError as error:
        return _refuse(error)
    return _run(publish_flow, str(run.path))


def _refuse_early(profile: str, overrides: dict[str, Any]) -> None:
    """Repeat here what the flow's first task checks: its refusal would come with a traceback."""
    from subtext.prepare import check_new, check_run
    from subtext.publishing.hub import check_access, require_token
    from subtext.tracking import check_reachable, tracking_uri

    config = resolve(profile, overrides)
    token = require_token(config.publish, os.environ)
    check_run(profile, overrides)
    check_new(config)
    check_reachable(tracking_uri())
    check_access(config.publish, token)


def _run(flow: Flow, *parameters: Any) -> int:
    for name, value in _PREFECT_DEFAULTS.items():
        os.environ.setdefault(name, value)
    try:
        state = flow(*parameters, return_state=True)
    except KeyboardInterrupt:
        print("\nInterrupted. What was saved before is in the run directory.", file=sys.stderr)
        return _INTERRUPTED
    if state.is_completed():
        _print_summary(state.result())
        return 0
    from subtext.publishing.uploads import UploadsError

    error = state.result(raise_on_failure=False)
    if isinstance(error, UploadsError):
        _print_summary(error.run_path)
    print(f"\n{state.name}: {state.message}", file=sys.stderr)
    return 1


def _print_summary(run_path: str) -> None:
    from rich.console import Console

    from subtext.summary import find_run, render_summary

    Console().print(render_summary(find_run(run_path)), crop=False)
    sys.stdout.flush()


def _refuse(error: SubtextError) -> int:
    print(error, file=sys.stderr)
    return _REFUSED
