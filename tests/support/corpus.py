"""A generated corpus in MUStARD's format, for tests in every clone."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from subtext import strict_json
from subtext.prosody.schema import SCHEMA, TRACKS_EXTRACTOR

_CASTS = {
    "HARBOUR": ("MIRELA", "TOBIN", "ODETTE"),
    "NIGHTSHIFT": ("CASPIAN", "WILMA", "PERSON"),
    "ALLOTMENT": ("INGRID", "HUMPHREY"),
}
_OPENINGS = ("Well,", "Honestly,", "Oh,", "So,", "Look,", "Right,")
_SUBJECTS = ("the boiler", "your cousin", "this meeting", "the soup", "our train", "the new roof")
_VERBS = ("really turned out", "is going to be", "looks", "has always been", "sounds")
_ENDINGS = (
    "wonderful",
    "exactly what we needed",
    "a triumph",
    "rather lovely",
    "very well planned",
)
_CLIPS_PER_MISSING_RECORD = 8


def write_corpus(root: Path, n_clips: int = 40, seed: int = 0, with_prosody: bool = True) -> Path:
    """Write `sarcasm_data.json` and `prosody.json` to `root` and return it.

    Labels alternate, so both classes are equally many, and nothing else depends on them. Shows,
    speakers and contexts vary; a context line sometimes calls a speaker by name. Every eighth clip
    has no prosody record; without `with_prosody` there is no prosody.json. The bytes depend on the
    arguments alone.
    """
    rng = random.Random(seed)
    clips = {_clip_id(index): _clip(rng, sarcasm=index % 2 == 0) for index in range(n_clips)}
    root.mkdir(parents=True, exist_ok=True)
    (root / "sarcasm_data.json").write_text(json.dumps(clips, indent=1), encoding="utf-8")
    if with_prosody:
        records = {
            clip_id: _record(rng)
            for index, clip_id in enumerate(clips)
            if (index + 1) % _CLIPS_PER_MISSING_RECORD
        }
        content = {
            "schema": SCHEMA,
            "extractor": f"{TRACKS_EXTRACTOR} (generated)",
            "clips": records,
        }
        strict_json.write(root / "prosody.json", content)
    return root


def _clip_id(index: int) -> str:
    return f"{1 + index % 3 // 2}_{100 + 7 * index}"


def _clip(rng: random.Random, *, sarcasm: bool) -> dict[str, Any]:
    show = rng.choice(list(_CASTS))
    speakers = [rng.choice(_CASTS[show]) for _ in range(rng.randint(2, 5))]
    context = [_line(rng) for _ in speakers[1:]]
    if rng.random() < 0.5:
        context[-1] += f" Don't you think so, {speakers[0].title()}?"
    return {
        "utterance": _line(rng),
        "speaker": speakers[0],
        "context": context,
        "context_speakers": speakers[1:],
        "show": show,
        "sarcasm": sarcasm,
    }


def _line(rng: random.Random) -> str:
    words = (_OPENINGS, _SUBJECTS, _VERBS, _ENDINGS)
    return " ".join(rng.choice(choices) for choices in words) + "."


def _record(rng: random.Random) -> dict[str, Any]:
    duration_s = round(rng.uniform(1.0, 8.0), 2)
    pauses_s = [round(rng.uniform(0.15, 0.3), 2) for _ in range(rng.randint(0, 3))]
    sd_st = round(rng.uniform(1.0, 6.0), 2)
    return {
        "duration_s": duration_s,
        "f0_median_hz": round(rng.uniform(90, 300), 1),
        "f0_sd_st": sd_st,
        "f0_range_st": round(3 * sd_st, 2),
        "f0_slope_st_per_s": round(rng.uniform(-4, 4), 2),
        "f0_final_slope_st_per_s": rng.choice([None, round(rng.uniform(-20, 20), 2)]),
        "voiced_fraction": round(rng.uniform(0.2, 0.8), 3),
        "intensity_sd_db": round(rng.uniform(2, 8), 2),
        "hnr_mean_db": round(rng.uniform(4, 15), 2),
        "pause_count": len(pauses_s),
        "pause_longest_s": max(pauses_s, default=0.0),
        "contour_st": [rng.choice([None, round(rng.uniform(-8, 8) * 2) / 2]) for _ in range(10)],
    }
