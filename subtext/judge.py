"""Use a trained adapter: give it clips, get labels with confidence and reasoning."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from subtext.answer import parse_final, reasoning_text
from subtext.config import ModelConfig, PromptConfig
from subtext.data.json_files import is_unicode
from subtext.data.masking import Cast
from subtext.errors import DataError, MachineError, Problem
from subtext.evaluation.generate import generate_answers
from subtext.policy.base_model import BaseModel, resolve_base
from subtext.policy.hush import hush_libraries
from subtext.policy.load import load_adapters, load_base, load_tokenizer, read_adapter_record
from subtext.policy.precision import Precision, choose_precision, machine_facts
from subtext.prompts import build_messages
from subtext.prosody.reference import Reference
from subtext.prosody.schema import record_problems

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Judge:
    """A loaded policy. Make one with `Judge.load(adapter)`; it may judge any number of clips."""

    model: Any
    tokenizer: Any
    prompt: PromptConfig
    cast: Cast
    reference: Reference
    max_new_tokens: int

    @classmethod
    def load(cls, adapter: Path) -> Judge:
        """Load the adapter in folder `adapter` and the base model that its record names.

        For an adapter trained on a local folder, `$SUBTEXT_BASE_MODEL` says where that lies.
        Raises DataError without a record, MachineError when the base found is not the recorded one.
        """
        hush_libraries()
        record = read_adapter_record(adapter)
        base = _recorded_base(record["base"], os.environ.get("SUBTEXT_BASE_MODEL", ""))
        precision = _recorded_precision(record)
        return cls(
            model=load_adapters(load_base(base, precision), {"trained": adapter}),
            tokenizer=load_tokenizer(base),
            prompt=PromptConfig.model_validate(record["prompt"]),
            cast=Cast.of_record(record["cast"]),
            reference=Reference.of_record(record["prosody_reference"]),
            max_new_tokens=record["max_new_tokens"],
        )

    def judge(
        self, clips: Sequence[Mapping[str, Any]], batch_size: int = 16
    ) -> list[dict[str, Any]]:
        """Judge `clips`, each a mapping with `utterance` and, where known, `context`,
        `context_speakers`, `speaker`, `prosody` and `clip_id`. Each is judged by itself.

        Returns one dict a clip: `label` ("sarcastic", "sincere" or None where the answer was
        malformed), `confidence` (0..1), `reasoning` (None where there was none), `well_formed`.
        Raises DataError that lists everything wrong with any clip.
        """
        problems = [
            problem
            for index, clip in enumerate(clips)
            for problem in clip_problems(f"clip {index}", clip)
        ]
        if batch_size < 1:
            problems.append(
                Problem("judge", "batch_size", batch_size, "is less than 1", "Give 1 or more.")
            )
        if problems:
            raise DataError("Clips refused", problems)
        conversations = [self._messages(clip) for clip in clips]
        judged: dict[int, dict[str, Any]] = {}
        for batch in generate_answers(
            self.model,
            self.tokenizer,
            conversations,
            max_new_tokens=self.max_new_tokens,
            batch_size=batch_size,
        ):
            for index, answer in batch:
                label, confidence, well_formed = parse_final(answer.text)
                judged[index] = {
                    "label": label,
                    "confidence": confidence,
                    "reasoning": reasoning_text(answer.text),
                    "well_formed": well_formed,
                }
        return [judged[index] for index in range(len(conversations))]

    def _messages(self, clip: Mapping[str, Any]) -> list[dict[str, str]]:
        clip_id = str(clip.get("clip_id") or "unknown")
        scenarios = self.reference.described_clips({clip_id: _as_clip(clip)})
        return build_messages(clip_id, scenarios, self.prompt, self.cast)


def clip_problems(where: str, clip: object) -> list[Problem]:
    """Return everything that keeps `clip` from being judged; `where` names it in the problems."""
    if not isinstance(clip, Mapping):
        remedy = "Give a mapping with utterance, and with context, speaker, prosody where known."
        return [Problem(where, "clip", clip, "is no clip", remedy)]
    text = clip.get("utterance")
    problems = []
    if not _is_text(text) or not text.strip():
        problems.append(Problem(where, "utterance", text, "is no text", "Give the line to judge."))
    for key in ("speaker", "clip_id"):
        if clip.get(key) is not None and not _is_text(clip[key]):
            remedy = "Give a text, or leave it out."
            problems.append(Problem(where, key, clip[key], "is no text", remedy))
    return [*problems, *_context_problems(where, clip), *_prosody_problems(where, clip)]


def _context_problems(where: str, clip: Mapping[str, Any]) -> Iterator[Problem]:
    lines, speakers = clip.get("context"), clip.get("context_speakers")
    given = {"context": lines, "context_speakers": speakers}
    bad = [key for key, value in given.items() if not _is_list_of_text(value)]
    for key in bad:
        yield Problem(where, key, given[key], "is no list of text", "Give one text a line.")
    n_lines = 0 if bad else len(lines or ())
    if not bad and speakers and len(speakers) != n_lines:
        yield Problem(
            where, "context_speakers", speakers, f"does not fit {n_lines} lines of context",
            "Give one speaker a line, or none at all.",
        )  # fmt: skip


def _prosody_problems(where: str, clip: Mapping[str, Any]) -> Iterator[Problem]:
    prosody = clip.get("prosody")
    if isinstance(prosody, Mapping):
        yield from record_problems(f"{where}, prosody", prosody)
        for name, value in prosody.items():
            numbers = value if isinstance(value, list) else [value]
            if any(isinstance(item, float) and not math.isfinite(item) for item in numbers):
                yield Problem(f"{where}, prosody", name, value, "is not finite", "Give null.")
    elif prosody is not None:
        remedy = "Give a record of prosody.json, or null."
        yield Problem(where, "prosody", prosody, "is no record", remedy)


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and is_unicode(value)


def _is_list_of_text(value: Any) -> bool:
    return value is None or (isinstance(value, list | tuple) and all(map(_is_text, value)))


def _as_clip(clip: Mapping[str, Any]) -> dict[str, Any]:
    context = list(clip.get("context") or [])
    return {
        "utterance": clip["utterance"],
        "speaker": clip.get("speaker") or "SPEAKER",
        "context": context,
        "context_speakers": list(clip.get("context_speakers") or ["OTHER"] * len(context)),
        "show": "",
        "prosody": clip.get("prosody"),
        "is_pivot": False,
    }


def _recorded_precision(record: Mapping[str, Any]) -> Precision:
    """The format that the policy was judged in, or the nearest that this machine has."""
    facts = machine_facts()
    short = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}[record["dtype"]]
    try:
        return choose_precision(
            facts, ModelConfig(precision=short, quantization=record["quantization"])
        )
    except MachineError as error:
        nearest = choose_precision(facts, ModelConfig(quantization=record["quantization"]))
        logger.warning("judging in %s, so answers may differ slightly: %s", nearest.dtype, error)
        return nearest


def _recorded_base(record: Mapping[str, Any], base_folder: str) -> BaseModel:
    if record["source"] == "path" and not base_folder:
        problem = Problem(
            "subtext.json", "base.name", record["name"],
            "was a local folder, and no folder is given here",
            "Set SUBTEXT_BASE_MODEL to the folder of that model.",
        )  # fmt: skip
        raise MachineError("The base model is not to be had", [problem])
    model = ModelConfig(
        source=record["source"],
        name=base_folder if record["source"] == "path" else record["name"],
        revision=record["revision"] or "main",
    )
    base = resolve_base(model)
    if record["sha256"] and base.sha256 != record["sha256"]:
        problem = Problem(
            "subtext.json", "base.sha256", record["sha256"],
            f"the base model found here has {base.sha256}, so answers would differ",
            "Install the version that the adapter was trained on.",
        )  # fmt: skip
        raise MachineError("The base model is another one", [problem])
    return base
