"""Start a flow from the checkout without a server. Bad input is refused before Prefect starts.

Exit codes: 0 Completed, 1 the flow run did not complete, 2 refused, 130 interrupted (Ctrl-C or
SIGTERM).
"""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from subtext.config import Overrides
from subtext.errors import SubtextError
from subtext.printable import printable
from subtext.profiles import Profile, parse_assignments, resolve
from subtext.signals import left_to_parent

Flow = Callable[..., Any]

_REFUSED = 2
_INTERRUPTED = 130
_SERVER_START_S = 180  # Prefect's limit of 20 s is short on two cores
_API_RETRIES = 8  # after 2, 4, 8 … 256 s: a server that is gone for eight minutes is waited for
_GO_ON = (
    "It was not told how the flow run ended. Once it is back, repeat the command with the same "
    "training.run_id: what is done is not done again."
)
_NO_TARGET = (
    "Note: this run names no repository, so MLflow is told what it lacks and nothing is published. "
    "To publish, first: python -m flows.evaluate_flow --protocol run --model {run} "
    "--set publish.adapter_repo=you/name"
)
_PREFECT_LOGGERS = ("prefect.flow_runs", "prefect.task_runs")


def train_main(train_flow: Flow, arguments: Sequence[str] | None = None) -> int:
    """Parse, validate, run the flow `subtext` and print the summary of the run."""
    parser = argparse.ArgumentParser(
        prog="python -m flows.train_flow",
        description="Train, judge, register and publish, without a Prefect server to start first.",
    )
    _add_knobs(parser, Profile.t4)
    options = parser.parse_args(arguments)
    try:
        overrides = parse_assignments(options.assignments)
        _refuse_early(options.profile, overrides)
    except SubtextError as error:
        return _refuse(error)
    started = time.time()
    return _run(
        train_flow, Profile(options.profile), Overrides(**overrides),
        kept=lambda: _how_to_go_on(options.profile, overrides, started),
    )  # fmt: skip


def _how_to_go_on(profile: str, overrides: dict[str, Any], started: float) -> str:
    from subtext.prepare import run_directory

    config = resolve(profile, overrides)
    if config.training.run_id:
        return "Go on with the same command."
    made = [
        path.parent
        for path in run_directory(config, "").path.glob("*/config.json")
        if path.stat().st_mtime >= started
    ]
    if not made:
        return "Nothing was made yet."
    newest = max(made, key=lambda run: run.stat().st_mtime)
    return f"Go on with the same command and --set training.run_id={newest.name}"


def evaluate_main(evaluate_flow: Flow, arguments: Sequence[str] | None = None) -> int:
    """Parse, validate, run the flow `subtext-evaluate` and print what it found."""
    parser = argparse.ArgumentParser(
        prog="python -m flows.evaluate_flow",
        description="Judge a trained model on the held-out clips of a profile; or finish a trained "
        "run whose later steps failed; or train and judge one policy on each of MUStARD's five "
        "official folds.",
    )
    parser.add_argument(
        "--protocol", choices=["model", "run", "official-folds"], default="model",
        help="run: judge, register and gate the trained run --model, of this machine or another; "
        "nothing is trained, its own configuration counts, and --set may say where things are "
        "here (data.root, model.name of a base in a folder, publish.*). Uploads follow with "
        "`python -m flows.publish_flow`",
    )  # fmt: skip
    parser.add_argument(
        "--model", default="models:/subtext@challenger", metavar="MODEL",
        help="protocol model: version in the registry, or a run directory or adapter folder; "
        "protocol run: a run directory, or the id of one in runs/",
    )  # fmt: skip
    _add_knobs(parser, Profile.cpu)
    options = parser.parse_args(arguments)
    folds = options.protocol == "official-folds"
    try:
        overrides = parse_assignments(options.assignments)
        if options.protocol == "run":
            _refuse_to_finish(options.model, overrides)
        else:
            _refuse_evaluation(options.profile, overrides, "" if folds else options.model)
    except SubtextError as error:
        return _refuse(error)
    parameters = (options.protocol, options.model, Profile(options.profile), Overrides(**overrides))
    return _run(evaluate_flow, *parameters, show=_print_folds if folds else _print_summary)


def publish_main(publish_flow: Flow, arguments: Sequence[str] | None = None) -> int:
    """Parse, find the run, run the flow `subtext-publish` and print the summary of the run."""
    parser = argparse.ArgumentParser(
        prog="python -m flows.publish_flow",
        description="Finish a judged run, of this machine or another: MLflow gets what it lacks "
        "of it, and the Hub the uploads that have not landed. Trains and judges nothing.",
    )
    parser.add_argument("--run", required=True, help="run directory, or the id of one in runs/")
    options = parser.parse_args(arguments)
    from subtext.publishing.access import check_access, require_token
    from subtext.publishing.uploads import check_finished
    from subtext.run_dir import load_config
    from subtext.summary import find_run
    from subtext.tracking import check_reachable, tracking_uri

    try:
        run = find_run(options.run)
        publish = load_config(run).publish
        check_finished(run)
        check_reachable(tracking_uri())
        check_access(publish, require_token(publish, os.environ))
    except SubtextError as error:
        return _refuse(error)
    if not publish.enabled:
        print(_NO_TARGET.format(run=shlex.quote(options.run)), file=sys.stderr)
    return _run(publish_flow, str(run.path))


def data_main(data_flow: Flow, arguments: Sequence[str] | None = None) -> int:
    """Parse, look at the folder, run the flow `subtext-data` and print what to do next."""
    parser = argparse.ArgumentParser(
        prog="python -m flows.data_flow",
        description="Make a corpus ready for training: fetch it, measure the delivery of its "
        "clips, choose its Pivot Set. A run that was stopped goes on where it was.",
    )
    parser.add_argument(
        "--root", default="", metavar="FOLDER",
        help="folder of the clips (default $SUBTEXT_DATA_ROOT, else data/mustard)",
    )  # fmt: skip
    parser.add_argument(
        "--source", choices=["none", "mustard"], default="none", help="corpus to fetch first"
    )
    parser.add_argument(
        "--allow-missing", action="store_true", help="go on without clips that can't be measured"
    )
    parser.add_argument(
        "--workers", type=int, default=0, metavar="N",
        help="processes that measure (default 0: as many as cores are free)",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    from subtext.data.folder import resolve_data_root
    from subtext.data.measure.corpus import check_corpus, check_workers
    from subtext.data.sources.fetch import read_corpus

    try:
        check_workers(options.workers)
        if options.source == "none":
            check_corpus(resolve_data_root(options.root))
        else:
            read_corpus()
    except SubtextError as error:
        return _refuse(error)
    parameters = (options.root, options.source, options.allow_missing, options.workers)
    return _run(
        data_flow, *parameters, show=_print_corpus, kept=lambda: "Clips measured so far are kept."
    )


def _add_knobs(parser: argparse.ArgumentParser, profile: Profile) -> None:
    parser.add_argument(
        "--profile", default=profile.value, metavar="NAME",
        help=f"starting point: {', '.join(Profile)} (default {profile})",
    )  # fmt: skip
    parser.add_argument(
        "--set", action="append", default=[], dest="assignments", metavar="SECTION.FIELD=VALUE",
        help="turn one knob, for example grpo.max_steps=3; repeatable "
        "(`subtext config fields` lists them)",
    )  # fmt: skip


def _refuse_evaluation(profile: str, overrides: dict[str, Any], model: str) -> None:
    """As `_refuse_early`; `model` is the one to judge, "" where the five folds are trained."""
    from subtext.evaluation.official_folds import fold_overrides
    from subtext.prepare import check_run
    from subtext.publishing.access import check_access, require_token
    from subtext.tracking import check_reachable, model_prompt, tracking_uri

    if not model:
        _refuse_early(profile, fold_overrides(overrides, 0))
        return
    publish = resolve(profile, overrides).publish
    token = require_token(publish, os.environ)
    check_reachable(tracking_uri())
    prompt = model_prompt(model).model_dump(mode="json")
    check_run(profile, {**overrides, "prompt": prompt}, judged_model=model)
    check_access(publish, token)


def _refuse_to_finish(name: str, overrides: dict[str, Any]) -> None:
    from subtext.reopen import check_reopen
    from subtext.summary import find_run
    from subtext.tracking import check_reachable, tracking_uri

    check_reopen(find_run(name), overrides)
    check_reachable(tracking_uri())


def _refuse_early(profile: str, overrides: dict[str, Any]) -> None:
    """Repeat here what the flow's first task checks: its refusal would come with a traceback."""
    from subtext.plan.plan import make_plan

    make_plan(profile, overrides, os.environ, light_first=True).refuse()


def _run(
    flow: Flow,
    *parameters: Any,
    show: Callable[[Any], None] | None = None,
    kept: Callable[[], str] = lambda: "What was saved before is in the run directory.",
) -> int:
    from httpx import TransportError

    for name in _PREFECT_LOGGERS:
        logging.getLogger(name).addFilter(_without_traceback)
    try:
        with _sigterm_as_ctrl_c(), _patient():
            _start_server()
            state = flow(*parameters, return_state=True)
    except KeyboardInterrupt:
        print(f"\nInterrupted. {kept()}", file=sys.stderr)
        return _INTERRUPTED
    except TransportError as error:
        print(f"\nThe Prefect server can't be reached: {error}. {_GO_ON}", file=sys.stderr)
        return 1
    if state.is_completed():
        (show or _print_summary)(state.result())
        return 0
    from subtext.publishing.uploads import UploadsError

    error = state.result(raise_on_failure=False)
    if isinstance(error, UploadsError):
        _print_summary(error.run_path)
    print(printable(f"\n{state.name}: {state.message}"), file=sys.stderr)
    return 1


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Its default ends the process at once and leaves the temporary server behind."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _patient() -> Iterator[None]:
    """Prefect's client waits longer for its server than its own minute, unless it is told how."""
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    with temporary_settings(set_defaults={PREFECT_CLIENT_MAX_RETRIES: _API_RETRIES}):
        yield


def _start_server() -> None:
    """Start Prefect's temporary server, unless another is configured; it ends with this process.

    Prefect would start the same one, and on Ctrl-C, which a terminal sends to all processes of the
    group, lose it first and then try for more than a minute to tell it of the end.
    """
    from prefect.settings import PREFECT_API_URL, PREFECT_SERVER_EPHEMERAL_ENABLED

    if PREFECT_API_URL.value() or not PREFECT_SERVER_EPHEMERAL_ENABLED.value():
        return
    from prefect.server.api.server import SubprocessASGIServer

    class TemporaryServer(SubprocessASGIServer):
        def _run_uvicorn_command(self) -> Any:
            with left_to_parent():
                return super()._run_uvicorn_command()

    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    # Prefect keeps one server a process and finds this one there.
    server = TemporaryServer()
    server.start(_SERVER_START_S)
    assert server.server_process is not None
    # Where this process is killed, nobody else would end the server: a shell that waits for the
    # end of its input, a pipe that lives as long as this process, does.
    subprocess.Popen(
        ["sh", "-c", f"cat > /dev/null; kill {server.server_process.pid} 2> /dev/null"],
        stdin=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def _without_traceback(record: logging.LogRecord) -> bool:
    """Shorten what Prefect logs of an error that Subtext raised on purpose; `_run` prints it."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, SubtextError):
        record.msg, record.args = f"Failed: {str(error).partition(chr(10))[0]}", ()
        record.exc_info = None
    return True


def _print_corpus(root: str) -> None:
    from rich.console import Console

    from subtext.data.folder import corpus_name
    from subtext.data.validate import validate
    from subtext.data.validate_table import render_report

    Console().print(render_report(validate(root)), crop=False)
    if corpus_name(root) == "demo":
        knobs = f"--profile {Profile.demo}"
    else:
        data_root = shlex.quote(f"data.root={root}")
        knobs = f"--profile {Profile.cpu} --set {data_root} --set data.split=scene"
    print(f"Next: python -m flows.train_flow {knobs}")
    sys.stdout.flush()


def _print_folds(path: str) -> None:
    from pathlib import Path

    from rich.console import Console

    from subtext import strict_json
    from subtext.fold_tables import render_folds

    Console().print(render_folds(strict_json.read(Path(path))), crop=False)
    print(f"All figures: {path}")
    sys.stdout.flush()


def _print_summary(run_path: str) -> None:
    from rich.console import Console

    from subtext.summary import find_run, render_summary

    Console().print(render_summary(find_run(run_path)), crop=False)
    sys.stdout.flush()


def _refuse(error: SubtextError) -> int:
    print(printable(str(error)), file=sys.stderr)
    return _REFUSED
