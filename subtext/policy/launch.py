"""Training in several processes: `accelerate launch` starts them, this one listens.

The first rank alone writes to the run directory. It tells the watcher's news, what the library logs
and what went wrong as lines of JSON on standard output, each begun by the record separator of JSON
text sequences (RFC 7464), since libraries print there too. The ranks' standard input is a pipe that
this process holds open: when it ends, however it ends, so do they.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from subtext.errors import SubtextError, TrainingError, TrainingStoppedError
from subtext.policy.checkpoints import newest_checkpoint
from subtext.progress import Progress, Watcher
from subtext.run_dir import RunDir

logger = logging.getLogger(__name__)

_SEPARATOR = "\x1e"
_ENDING_S = 25.0  # Prefect kills a cancelled flow run after 30
_LAST_LINES = 40


def launch_training(run: RunDir, n_processes: int, watcher: Watcher) -> None:
    """Train `run` in `n_processes` ranks, to the end.

    A signal that ends this process is passed on: the ranks finish their step, the first saves it,
    and whatever still runs after 25 s is killed. Raises TrainingError, with what the ranks said
    last, where they do not all come to a good end; TrainingStoppedError where an alarm ended it.
    """
    newest_checkpoint(run)  # deletes what is not whole, which the ranks must not do at once
    command = [
        sys.executable, "-m", "accelerate.commands.launch",
        "--multi_gpu",  # accelerate's word for one process a rank, without GPUs too
        "--num_processes", str(n_processes), "--num_machines", "1", "--main_process_port", "0",
        "--mixed_precision", "no", "--dynamo_backend", "no",
        "-m", "subtext.policy.rank", str(run.path),
    ]  # fmt: skip
    last_lines: deque[str] = deque(maxlen=_LAST_LINES)
    errors: list[SubtextError] = []
    listened_to, listening = os.pipe()
    process = subprocess.Popen(
        command, stdin=listened_to, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True,
    )  # fmt: skip
    os.close(listened_to)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            said, news = _told(line)
            if said:
                last_lines.append(said)
            if news:
                errors += _heard(news, watcher)
        code = process.wait()
    finally:
        _end(process)
        os.close(listening)  # ends ranks that the launcher could not end
    if errors:
        raise errors[0]
    if code:
        raise TrainingError(
            f"one of the {n_processes} processes of training died (accelerate launch ended with "
            f"{code}). The same run goes on from its newest checkpoint. It said last:\n"
            + "\n".join(last_lines)
        )


def end_with_listener() -> None:
    """Kill this rank as soon as nobody listens: its run may be another process's from then on."""

    def wait() -> None:
        os.read(0, 1)  # not by way of sys.stdin, whose lock would be held when the rank ends
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="listener", daemon=True).start()


def tell_progress(progress: Progress) -> None:
    """A watcher for the first rank: passes progress on to the process that listens."""
    _tell({"progress": asdict(progress)})


def tell_error(error: SubtextError) -> None:
    """Pass on why this rank stops."""
    _tell({"error": str(error), "stopped": isinstance(error, TrainingStoppedError)})


class TellLog(logging.Handler):
    """Passes on what the library logs in the first rank."""

    def emit(self, record: logging.LogRecord) -> None:
        _tell({"log": record.getMessage(), "level": record.levelno})


def _tell(news: Mapping[str, Any]) -> None:
    print(f"{_SEPARATOR}{json.dumps(news)}", flush=True)


def _told(line: str) -> tuple[str, dict[str, Any]]:
    """What a library printed in `line`, and the news that follow it there.

    Pipes keep short writes whole alone: news of another rank may cut long ones in two, which are
    then as good as printed.
    """
    said, separator, told = line.rstrip().partition(_SEPARATOR)
    try:
        return said, json.loads(told) if separator else {}
    except ValueError:
        return line.rstrip(), {}


def _heard(news: Mapping[str, Any], watcher: Watcher) -> list[SubtextError]:
    """Pass news on; return the error that it is, if it is one."""
    if "progress" in news:
        watcher(Progress(**news["progress"]))
    elif "log" in news:
        logger.log(news["level"], "%s", news["log"])
    else:
        kind = TrainingStoppedError if news["stopped"] else TrainingError
        return [kind(news["error"])]
    return []


def _end(process: subprocess.Popen[str]) -> None:
    """Ask the launcher, which asks its ranks, and kill what is left after a while."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_ENDING_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
