"""What training itself says against its result: read from TRL's log and from its completions.

Alarms, each over the last quarter of the steps:

- `no_learning_signal`: mean `frac_reward_zero_std` above `gate.max_without_signal`; a group whose
  rewards are equal moves nothing.
- `clipped_completions`: mean `completions/clipped_ratio` above `gate.max_clipped`.
- `collapsed_length`: mean `completions/mean_length` below `gate.min_length_ratio` times that of the
  first quarter.
- `not_logged`: a step of it lacks one of these or its reward. TRL reports rewards that are no
  numbers as a healthy spread, and the log then holds null for the reward.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from subtext.answer import is_strict
from subtext.config import GateConfig
from subtext.evaluation.statistics import wilson_interval
from subtext.figures import percent

REWARD = "reward"
ZERO_SPREAD = "frac_reward_zero_std"
CLIPPED = "completions/clipped_ratio"
LENGTH = "completions/mean_length"

Steps = Sequence[Mapping[str, Any]]


def training_alarms(log_history: Steps, gate: GateConfig) -> list[dict[str, str]]:
    """Return `{"name", "message"}` of each alarm; none for a log without GRPO steps."""
    steps = [record for record in log_history if REWARD in record and "step" in record]
    found = _alarms(steps, gate) if steps else ()
    return [{"name": name, "message": message} for name, message in found]


def training_form(completions: Path, n_last_steps: int = 5) -> dict[str, Any] | None:
    """Return how often the completions of the last steps have the strict form.

    Training generates to the end token or the limit, so that these show what a policy writes after
    its answer, which judging stops at. `completions` holds TRL's `completions_<step>.parquet`.
    Returns `n`, `strict_rate`, its 95 % Wilson `interval`, `first_step` and `last_step`; None
    where no completion was kept.
    """
    import pandas as pd

    files = sorted(completions.glob("completions_*.parquet"), key=_step)[-n_last_steps:]
    texts = [
        messages[-1]["content"]
        for file in files
        for messages in pd.read_parquet(file, columns=["completion"])["completion"]
    ]
    if not texts:
        return None
    n_strict = sum(map(is_strict, texts))
    return {
        "n": len(texts),
        "strict_rate": n_strict / len(texts),
        "interval": list(wilson_interval(n_strict, len(texts))),
        "first_step": _step(files[0]),
        "last_step": _step(files[-1]),
    }


def _alarms(steps: Steps, gate: GateConfig) -> Iterator[tuple[str, str]]:
    size = -(-len(steps) // 4)
    first, last = steps[:size], steps[-size:]
    when = f"over the last {size} of {len(steps)} steps"
    for name in (REWARD, ZERO_SPREAD, CLIPPED, LENGTH):
        n_missing = size - len(_values(last, name))
        if n_missing:
            yield (
                "not_logged",
                f"{name} is no number in {n_missing} of the last {size} steps, so that part of "
                "training was not watched",
            )
    equal, clipped = _values(last, ZERO_SPREAD), _values(last, CLIPPED)
    if equal and fmean(equal) > gate.max_without_signal:
        yield (
            "no_learning_signal",
            f"{percent(fmean(equal))} of the groups had equal rewards {when}, more than "
            f"gate.max_without_signal = {gate.max_without_signal}: they taught nothing",
        )
    if clipped and fmean(clipped) > gate.max_clipped:
        yield (
            "clipped_completions",
            f"{percent(fmean(clipped))} of the completions were cut at grpo.max_completion_length "
            f"{when}, more than gate.max_clipped = {gate.max_clipped}",
        )
    before, after = _values(first, LENGTH), _values(last, LENGTH)
    if before and after and fmean(after) < gate.min_length_ratio * fmean(before):
        yield (
            "collapsed_length",
            f"completions fell from {fmean(before):.0f} tokens over the first {size} steps to "
            f"{fmean(after):.0f} {when}, below gate.min_length_ratio = {gate.min_length_ratio}",
        )


def _values(steps: Steps, name: str) -> list[float]:
    return [step[name] for step in steps if step.get(name) is not None]


def _step(file: Path) -> int:
    return int(re.sub(r"\D", "", file.stem))
