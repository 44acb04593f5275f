"""What training itself says against its result: read from TRL's log and from its completions.

An alarm is a condition on a window of logged steps, some of them beside an earlier window. While
training runs the windows are the last and the first `window_steps`; for the result they are the
last and the first quarter of the steps.

- `missing_rewards`: any `rewards/missing_ratio`. The reward scores whatever is written, so one
  None, NaN or infinity is a fault of it; TRL leaves it out of every mean, and training goes on.
- `no_learning_signal`: mean `frac_reward_zero_std` above `gate.max_without_signal`; a group whose
  rewards are equal moves nothing.
- `no_gradient`: `grad_norm` no number or below 1e-6 in every step. Below that is rounding error:
  healthy norms are 0.01 and more. Loss 0 alone is normal on policy, and so are single steps without
  a number in fp16, whose scaler skips them.
- `clipped_completions`: mean `completions/clipped_ratio` above `gate.max_clipped`; while training
  runs above one half at least, since shortening them may be what it is about to learn.
- `collapsed_length`: mean `completions/mean_length` below `gate.min_length_ratio` times that of the
  earlier window.
- `grown_length`: the same above 4 times, the default of that limit turned round. The seed's reward
  pays for 50 words of reasoning, so twice the length of a short start is what was asked for.
- `reward_without_accuracy`: mean `reward` above and mean `accuracy` below those of the earlier
  window by 4 standard errors each, from the scatter of the steps in both, and accuracy by 0.1 at
  least, so that a fall which is certain but small is none. Windows are looked at after every step:
  where the reward rises and accuracy stays, 4 errors are passed by chance in 0.3 % of runs of 26
  steps with 8 groups each and in 2 % of runs of 200 steps, 3 errors in 1 and 11 % (simulated).
- `repeated_answers`: mean `completions/same_text_ratio` above 0.8: one text answers nearly every
  prompt. A policy with one text a label stays near 0.5.
- `looping_answers`: mean `completions/looping_ratio` above one half.
- `not_logged`, of the result only: a step lacks one of the first figures or its reward. TRL reports
  rewards that are no numbers as a healthy spread, and the log then holds null for the reward.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from subtext.answer import is_strict
from subtext.config import GateConfig
from subtext.evaluation.statistics import wilson_interval
from subtext.figures import percent

REWARD = "reward"
ACCURACY = "accuracy"
GRADIENT = "grad_norm"
ZERO_SPREAD = "frac_reward_zero_std"
CLIPPED = "completions/clipped_ratio"
LENGTH = "completions/mean_length"
# Logged by `subtext.policy.watched_reward`.
MISSING = "rewards/missing_ratio"
SAME_TEXT = "completions/same_text_ratio"
LOOPING = "completions/looping_ratio"

MAX_CLIPPED_WHILE_TRAINING = 0.5
MAX_LENGTH_RATIO = 4.0
MAX_SAME_TEXT = 0.8
MAX_LOOPING = 0.5
_NO_GRADIENT = 1e-6
_N_ERRORS = 4.0
_MIN_FALL = 0.1
_MIN_STEPS_OF_TREND = 5

_MIN_STEPS = 10
_MIN_GROUPS = 32

_REMEDIES = {
    "missing_rewards": "Make the reward return a finite number for every completion.",
    "no_learning_signal": "Raise grpo.temperature or grpo.num_generations, or have the reward tell "
    "the completions of a prompt apart.",
    "no_gradient": "Look at the spread of the rewards, at completions without an end where "
    "grpo.mask_truncated_completions leaves those out, and at grpo.learning_rate.",
    "clipped_completions": "Raise grpo.max_completion_length, or warm_start.steps so that answers "
    "come to an end.",
    "collapsed_length": "Read the last completions; lower grpo.learning_rate or raise grpo.beta.",
    "grown_length": "Read the last completions; lower grpo.learning_rate or raise grpo.beta.",
    "reward_without_accuracy": "Read the completions that are paid best, and change the reward.",
    "repeated_answers": "Raise grpo.temperature or grpo.beta, or lower grpo.learning_rate.",
    "looping_answers": "Raise grpo.temperature, or lower the learning rates.",
}

Step = Mapping[str, Any]
Steps = Sequence[Step]
Alarm = dict[str, str]


def training_alarms(log_history: Steps, gate: GateConfig) -> list[Alarm]:
    """Return `{"name", "message"}` of each alarm; none for a log without GRPO steps."""
    steps = grpo_steps(log_history)
    if not steps:
        return []
    size = -(-len(steps) // 4)
    first, last = steps[:size], steps[-size:]
    when = f"over the last {size} of {len(steps)} steps"
    return [*_not_logged(last), *_alarms(first, last, when, gate, gate.max_clipped)]


def alarms_so_far(log_history: Steps, gate: GateConfig, window: int) -> list[Alarm]:
    """Return the alarms of training that still runs, each with what to do in its message.

    `window` is the number of steps looked at; before there are as many there is an alarm about
    missing rewards only, and before there are twice as many none that looks at two windows.
    """
    steps = grpo_steps(log_history)
    last = steps[-window:]
    first = steps[:window] if len(steps) >= 2 * window else []
    when = f"over the last {len(last)} of {len(steps)} steps"
    max_clipped = max(gate.max_clipped, MAX_CLIPPED_WHILE_TRAINING)
    return [
        {"name": alarm["name"], "message": f"{alarm['message']}. {_REMEDIES[alarm['name']]}"}
        for alarm in _alarms(first, last, when, gate, max_clipped)
        if len(last) == window or alarm["name"] == "missing_rewards"
    ]


def window_steps(groups_per_step: float) -> int:
    """Return how many steps an alarm looks at while training runs: 10, and 32 groups at least.

    One group a step is 0 or 1 without spread, and ten in a row are nothing strange. With 32 groups,
    of which 6 in 10 are without spread, `gate.max_without_signal` = 0.9 is passed by chance in
    less than 1 % of runs of 200 steps (simulated).
    """
    return max(_MIN_STEPS, math.ceil(_MIN_GROUPS / groups_per_step))


def grpo_steps(log_history: Steps) -> list[Step]:
    """Return the records of steps in which something was sampled and rewarded."""
    return [record for record in log_history if REWARD in record and "step" in record]


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


def _not_logged(last: Steps) -> Iterator[Alarm]:
    for name in (REWARD, ZERO_SPREAD, CLIPPED, LENGTH):
        # A reward that is missing has an alarm of its own, where it was counted.
        watched = last if name != REWARD else [step for step in last if not step.get(MISSING)]
        if n_missing := len(watched) - len(_values(watched, name)):
            yield _alarm(
                "not_logged",
                f"{name} is no number in {n_missing} of the last {len(last)} steps, so that part "
                "of training was not watched",
            )


def _alarms(
    first: Steps, last: Steps, when: str, gate: GateConfig, max_clipped: float
) -> Iterator[Alarm]:
    """Every condition on the window `last`, some of them beside the earlier window `first`."""
    if (missing := _mean(last, MISSING)) > 0:
        yield _alarm(
            "missing_rewards",
            f"{percent(missing, 1)} of the rewards were None, NaN or infinite {when}",
        )
    if (equal := _mean(last, ZERO_SPREAD)) > gate.max_without_signal:
        yield _alarm(
            "no_learning_signal",
            f"{percent(equal)} of the groups had equal rewards {when}, more than "
            f"gate.max_without_signal = {gate.max_without_signal}: they taught nothing",
        )
    gradients = [step[GRADIENT] for step in last if GRADIENT in step]
    if gradients and not any(_is_number(norm) and norm >= _NO_GRADIENT for norm in gradients):
        yield _alarm("no_gradient", f"grad_norm was 0 or no number in every step {when}")
    if (clipped := _mean(last, CLIPPED)) > max_clipped:
        limit = "gate.max_clipped = " if max_clipped == gate.max_clipped else ""
        yield _alarm(
            "clipped_completions",
            f"{percent(clipped)} of the completions were cut at grpo.max_completion_length "
            f"{when}, more than {limit}{max_clipped}",
        )
    yield from _length_alarms(_values(first, LENGTH), _values(last, LENGTH), when, gate)
    yield from _accuracy_alarm(first, last, when)
    if (same := _mean(last, SAME_TEXT)) > MAX_SAME_TEXT:
        yield _alarm(
            "repeated_answers",
            f"{percent(same)} of the completions, for different prompts, were one and the same "
            f"text {when}, more than {MAX_SAME_TEXT}",
        )
    if (looping := _mean(last, LOOPING)) > MAX_LOOPING:
        yield _alarm(
            "looping_answers",
            f"{percent(looping)} of the completions repeat themselves {when}, more than "
            f"{MAX_LOOPING}",
        )


def _length_alarms(
    before: list[float], after: list[float], when: str, gate: GateConfig
) -> Iterator[Alarm]:
    if not before or not after:
        return
    was, now = fmean(before), fmean(after)
    moved = f"from {was:.0f} tokens over the first {len(before)} steps to {now:.0f} {when}"
    if now < gate.min_length_ratio * was:
        yield _alarm(
            "collapsed_length",
            f"completions fell {moved}, below gate.min_length_ratio = {gate.min_length_ratio}",
        )
    if now > MAX_LENGTH_RATIO * was:
        yield _alarm(
            "grown_length", f"completions grew {moved}, more than {MAX_LENGTH_RATIO:g} times"
        )


def _accuracy_alarm(first: Steps, last: Steps, when: str) -> Iterator[Alarm]:
    rewards, were = _values(last, REWARD), _values(first, REWARD)
    right, was_right = _values(last, ACCURACY), _values(first, ACCURACY)
    if min(map(len, (rewards, were, right, was_right))) < _MIN_STEPS_OF_TREND:
        return
    if fmean(was_right) - fmean(right) < _MIN_FALL:
        return
    if _is_above(rewards, were) and _is_above(was_right, right):
        yield _alarm(
            "reward_without_accuracy",
            f"the mean reward rose from {fmean(were):.2f} over the first {len(were)} steps to "
            f"{fmean(rewards):.2f} {when}, while accuracy fell from {percent(fmean(was_right))} to "
            f"{percent(fmean(right))}: it is not right answers that are paid",
        )


def _is_above(higher: Sequence[float], lower: Sequence[float]) -> bool:
    """Whether the mean of `higher` is above that of `lower` by more than chance would have it."""
    error = math.sqrt(variance(higher) / len(higher) + variance(lower) / len(lower))
    return fmean(higher) - fmean(lower) > _N_ERRORS * error


def _alarm(name: str, message: str) -> Alarm:
    return {"name": name, "message": message}


def _mean(steps: Steps, name: str) -> float:
    """The mean of the figure, 0 where no step has it."""
    values = _values(steps, name)
    return fmean(values) if values else 0.0


def _values(steps: Steps, name: str) -> list[float]:
    return [step[name] for step in steps if _is_number(step.get(name))]


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _step(file: Path) -> int:
    return int(re.sub(r"\D", "", file.stem))
