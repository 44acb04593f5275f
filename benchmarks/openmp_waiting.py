"""How much a busy neighbour costs torch, when its threads spin and when they sleep while waiting.

    python benchmarks/openmp_waiting.py

A child process trains the tiny policy with two threads while another process keeps one core busy;
once with OpenMP's default of waiting in a spin, once with `OMP_WAIT_POLICY=PASSIVE`, which
`subtext.policy.threads` sets. Printed last: seconds a step, default over passive.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_STEPS = 5
_THREADS = 2
_ROWS, _TOKENS = 8, 512


def main() -> None:
    """Measure both and print seconds a step and their ratio."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        spinning = _seconds_a_step({})
        sleeping = _seconds_a_step({"OMP_WAIT_POLICY": "PASSIVE"})
    finally:
        busy.kill()
        busy.wait()
    print(f"one busy neighbour, {_THREADS} threads, {_ROWS} x {_TOKENS} tokens a step")
    print(f"default: {spinning:.2f} s a step\npassive: {sleeping:.2f} s a step")
    print(f"ratio: {spinning / sleeping:.2f}")


def _seconds_a_step(variables: dict[str, str]) -> float:
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, __file__, "child"],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


def _child() -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from subtext.policy.tiny import build_tiny

    torch.set_num_threads(_THREADS)
    with tempfile.TemporaryDirectory() as folder:
        model = AutoModelForCausalLM.from_pretrained(build_tiny(Path(folder)))
    ids = torch.randint(0, model.config.vocab_size, (_ROWS, _TOKENS))
    model(input_ids=ids, labels=ids).loss.backward()
    started = time.perf_counter()
    for _ in range(_STEPS):
        model(input_ids=ids, labels=ids).loss.backward()
    print((time.perf_counter() - started) / _STEPS)


if __name__ == "__main__":
    _child() if sys.argv[1:] else main()
