"""The real training flow, made short: a tiny policy on a generated corpus, as a process."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from support.corpus import write_corpus
from support.prefect_server import CHECKOUT, PrefectServer
from support.tiny_policy import build_tiny_policy

from subtext.run_dir import RunDir
from subtext.tracking.metric_log import read_metric_log

KNOBS = {
    "data.require_prosody": "false",
    "data.n_train_rows": "1200",
    "model.source": "path",
    "model.quantization": "none",
    "warm_start.steps": "0",
    "grpo.max_completion_length": "8",
    "training.save_steps": "5",
    "training.num_threads": "1",
    "evaluation.n_eval_clips": "4",
    "evaluation.n_train_clips": "0",
    "evaluation.ablations": "[]",
}
_LIMIT_S = 240


class Flow:
    """`python -m <module> <arguments>` against a Prefect server; stopped on leaving."""

    def __init__(
        self, server: PrefectServer, env: Mapping[str, str], module: str, *arguments: str
    ) -> None:
        self._log = Path(env["SUBTEXT_HOME"]) / f"flow-{time.monotonic_ns()}.log"
        with self._log.open("w") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments], cwd=CHECKOUT,
                env={**server.environment, **env}, stdout=stream, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def __enter__(self) -> Flow:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    @property
    def said(self) -> str:
        return self._log.read_text()

    def flow_run_id(self) -> str:
        """The id in the address that Prefect prints at the start."""
        return self.said.partition("/runs/flow-run/")[2].split()[0]

    def wait_for_step(self, run: RunDir, step: int) -> None:
        """Wait until training has finished `step`."""
        deadline = time.monotonic() + _LIMIT_S
        while last_step(run) < step:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.1)

    def end(self, limit_s: float = _LIMIT_S) -> int:
        """Wait for its end and return the exit code."""
        return self.process.wait(limit_s)


def last_step(run: RunDir) -> int:
    """The last step whose metrics are in the run directory; 0 before the first."""
    lines = run.metric_log.read_bytes().count(b"\n") if run.metric_log.exists() else 0
    return max((r.step for r in read_metric_log(run.metric_log)), default=0) if lines else 0


def write_home(home: Path) -> Path:
    """Corpus and untrained policy for runs of `home`, which is the environment's SUBTEXT_HOME."""
    write_corpus(home / "data" / "mustard")
    build_tiny_policy(home / "policy")
    return home


def settings(home: Path, run_id: str, max_steps: int, **knobs: str) -> list[str]:
    """The command line of `flows.train_flow` for a tiny run; `knobs` with __ for the dot."""
    turned = {name.replace("__", "."): value for name, value in knobs.items()}
    named = {"model.name": str(home / "policy"), "training.run_id": run_id}
    everything = {**KNOBS, **named, "grpo.max_steps": str(max_steps), **turned}
    parts = [part for name, value in everything.items() for part in ("--set", f"{name}={value}")]
    return ["--profile", "cpu", *parts]
