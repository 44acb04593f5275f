"""The clips of the report: what each policy read and answered, one JSON row a held-out clip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from subtext.config import PromptConfig
from subtext.data.clips import Scenarios
from subtext.data.masking import Cast, masked_clip
from subtext.prompts import build_full_observation

POLICIES = ("base", "warm", "trained", "champion")
"""Passes whose answers are shown whole; of every other pass the label and P(sarcastic)."""

Record = Mapping[str, Any]


def clip_rows(
    records: Mapping[str, Sequence[Record]],
    scenarios: Scenarios,
    prompt: PromptConfig,
    strata: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Return one row a clip of the trained pass, in its order.

    `records` holds the judged clips of every pass, `strata` the Pivot stratum of the clips that
    have one. Line, context and speakers are shown as `prompt` shows them, masked where it masks.
    A pass that did not judge a clip is absent from its row.
    """
    cast = Cast.of(scenarios)
    by_clip = {
        name: {record["clip_id"]: record for record in judged} for name, judged in records.items()
    }
    return [
        _row(record, _answers_of(record["clip_id"], by_clip), scenarios, prompt, strata, cast)
        for record in records["trained"]
    ]


def _row(
    record: Record,
    answers: Mapping[str, Record],
    scenarios: Scenarios,
    prompt: PromptConfig,
    strata: Mapping[str, str],
    cast: Cast,
) -> dict[str, Any]:
    clip_id = record["clip_id"]
    clip = scenarios[clip_id]
    shown = masked_clip(clip, cast) if prompt.speaker == "masked" else clip
    prosody = clip.get("prosody")
    return {
        "clip_id": clip_id,
        "speaker": shown["speaker"],
        "line": shown["utterance"],
        "context": [
            list(pair) for pair in zip(shown["context_speakers"], shown["context"], strict=True)
        ],
        "prompt": build_full_observation(clip_id, scenarios, prompt, cast),
        "gold": record["gold"],
        "is_pivot": record["is_pivot"],
        "stratum": strata.get(clip_id),
        "contour_st": list(prosody["contour_st"]) if prosody else None,
        "answers": {name: _answer(answers[name]) for name in POLICIES if name in answers},
        "others": {
            name: {"predicted": other["predicted"], "p_sarcastic": other["p_sarcastic"]}
            for name, other in answers.items()
            if name not in POLICIES
        },
    }


def _answers_of(clip_id: str, by_clip: Mapping[str, Mapping[str, Record]]) -> dict[str, Record]:
    return {name: judged[clip_id] for name, judged in by_clip.items() if clip_id in judged}


def _answer(record: Record) -> dict[str, Any]:
    return {
        "text": record["completion_text"],
        "predicted": record["predicted"],
        "confidence": record["confidence"],
        "p_sarcastic": record["p_sarcastic"],
        "correct": record["correct"],
        "well_formed": record["well_formed"],
        "strict": record["strict"],
    }
