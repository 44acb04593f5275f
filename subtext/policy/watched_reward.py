"""Figures about a batch that no reward gives, logged beside whatever reward is at work.

- `rewards/missing_ratio`: rewards that are None, NaN or infinite. TRL leaves the first two out of
  every mean it logs.
- `completions/same_text_ratio`: how many of the last 64 completions (of the batch, where that is
  larger) are one text that answers two prompts or more. A batch alone may hold a single prompt.
- `completions/looping_ratio`: completions in which more than half of the runs of four tokens came
  before in the same completion: seq-rep-4 of Welleck et al. 2020 (arXiv 1908.04319).

Each is a share, 0..1, of one process's completions; TRL averages over processes.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from subtext.evaluation.alarms import LOOPING, MISSING, SAME_TEXT
from subtext.rewards import RewardFn

_N_REMEMBERED = 64
_RUN_LENGTH = 4

Tokens = tuple[int, ...]


def watched(reward: RewardFn) -> RewardFn:
    """Return `reward`, under its own name, that also logs the figures with TRL's `log_metric`."""
    answers: list[tuple[str, Tokens]] = []  # prompt, completion

    @functools.wraps(reward)
    def with_figures(**columns: Any) -> list[float]:
        rewards = reward(**columns)
        completions = [tuple(ids) for ids in columns["completion_ids"]]
        prompts = [str(prompt) for prompt in columns["prompts"]]
        answers.extend(zip(prompts, completions, strict=True))
        del answers[: -max(_N_REMEMBERED, len(completions))]
        log_metric, n = columns["log_metric"], len(completions)
        log_metric(MISSING, sum(map(_is_missing, rewards)) / n)
        log_metric(SAME_TEXT, same_text_ratio(answers))
        log_metric(LOOPING, sum(map(loops, completions)) / n)
        return rewards

    return with_figures


def same_text_ratio(answers: Sequence[tuple[str, Tokens]]) -> float:
    """Return the share of `answers` (prompt, completion) that are the commonest completion, of
    those given to two prompts or more; 0 where there is none."""
    prompts_of: defaultdict[Tokens, list[str]] = defaultdict(list)
    for prompt, completion in answers:
        prompts_of[completion].append(prompt)
    shared = [len(prompts) for prompts in prompts_of.values() if len(set(prompts)) > 1]
    return max(shared, default=0) / len(answers)


def loops(completion: Tokens) -> bool:
    """Whether more than half of the runs of four tokens came before in `completion`."""
    runs = list(zip(*(completion[start:] for start in range(_RUN_LENGTH)), strict=False))
    return 2 * len(set(runs)) < len(runs)


def _is_missing(reward: float | None) -> bool:
    return reward is None or not math.isfinite(reward)
