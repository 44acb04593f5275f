"""The training rows: which clip stands where, and the prompt of each."""

from __future__ import annotations

import logging
import random
from collections.abc import Collection, Iterator
from itertools import chain, cycle, islice
from typing import TYPE_CHECKING, Any

from subtext.answer import SARCASTIC, SINCERE
from subtext.config import PromptConfig
from subtext.data.clips import Scenarios
from subtext.errors import ConfigError, DataError, Problem
from subtext.prompts import SEED_PROMPT, build_messages

if TYPE_CHECKING:
    from datasets import Dataset


logger = logging.getLogger(__name__)


def dataset_rows(
    scenarios: Scenarios,
    n_rows: int,
    seed: int = 0,
    allowed_clip_ids: Collection[str] | None = None,
    pivot_oversample: int = 2,
    class_balance: bool = True,
    prompt: PromptConfig = SEED_PROMPT,
) -> list[dict[str, Any]]:
    """Return `n_rows` rows `prompt` (chat messages), `clip_id`, `gold`, `is_pivot`.

    Each class is a shuffled pool in which a Pivot clip stands `pivot_oversample` times. With
    `class_balance` rows alternate sarcastic, sincere; without, the two pools follow one another.
    Pools repeat until `n_rows` are full. `allowed_clip_ids` limits the clips, to the training
    ids. Raises DataError when a class has no clip or an allowed id is unknown.
    """
    pools = _shuffled_pools(scenarios, seed, allowed_clip_ids, pivot_oversample)
    order = _alternating(*pools) if class_balance else cycle(chain(*pools))
    messages = {
        clip_id: build_messages(clip_id, scenarios, prompt) for clip_id in set(chain(*pools))
    }
    return [
        {
            "prompt": messages[clip_id],
            "clip_id": clip_id,
            "gold": SARCASTIC if scenarios[clip_id]["sarcasm"] else SINCERE,
            "is_pivot": bool(scenarios[clip_id].get("is_pivot", False)),
        }
        for clip_id in islice(order, n_rows)
    ]


def build_dataset(
    scenarios: Scenarios,
    n_rows: int,
    seed: int = 0,
    allowed_clip_ids: Collection[str] | None = None,
    pivot_oversample: int = 2,
    class_balance: bool = True,
    prompt: PromptConfig = SEED_PROMPT,
) -> Dataset:
    """Return the rows of `dataset_rows` as a Hugging Face Dataset."""
    from datasets import Dataset

    return Dataset.from_list(
        dataset_rows(
            scenarios, n_rows, seed, allowed_clip_ids, pivot_oversample, class_balance, prompt
        )
    )


def _shuffled_pools(
    scenarios: Scenarios,
    seed: int,
    allowed_clip_ids: Collection[str] | None,
    pivot_oversample: int,
) -> tuple[list[str], list[str]]:
    if pivot_oversample < 1:
        problem = Problem(
            "dataset", "data.pivot_oversample", pivot_oversample, "would drop the Pivot clips",
            "Give 1 for no oversampling, or more.",
        )  # fmt: skip
        raise ConfigError("Configuration refused", [problem])
    allowed = set(scenarios if allowed_clip_ids is None else allowed_clip_ids)
    if unknown := sorted(allowed - scenarios.keys()):
        problem = Problem(
            "dataset", "allowed_clip_ids", unknown[:5], f"{len(unknown)} ids are no loaded clips",
            "Split the clips that were loaded.",
        )  # fmt: skip
        raise DataError("Dataset refused", [problem])
    sarcastic: list[str] = []
    sincere: list[str] = []
    for clip_id, clip in scenarios.items():
        if clip_id in allowed:
            weight = pivot_oversample if clip.get("is_pivot") else 1
            (sarcastic if clip["sarcasm"] else sincere).extend([clip_id] * weight)
    if not sarcastic or not sincere:
        problem = Problem(
            "dataset", "sarcasm", f"{len(sarcastic)} sarcastic, {len(sincere)} sincere",
            "a class has no training clip", "Add clips of both classes, or split otherwise.",
        )  # fmt: skip
        raise DataError("Dataset refused", [problem])
    rng = random.Random(seed)
    rng.shuffle(sarcastic)
    rng.shuffle(sincere)
    logger.info(
        "pools: %d sarcastic, %d sincere entries, a Pivot clip counting %d",
        len(sarcastic), len(sincere), pivot_oversample,
    )  # fmt: skip
    return sarcastic, sincere


def _alternating(sarcastic: list[str], sincere: list[str]) -> Iterator[str]:
    return chain.from_iterable(zip(cycle(sarcastic), cycle(sincere), strict=False))
