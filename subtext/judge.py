"""Use a trained adapter: give it clips, get labels with confidence and reasoning."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subtext.answer import parse_final, reasoning_text
from subtext.config import ModelConfig, PromptConfig
from subtext.data.masking import Cast
from subtext.errors import DataError, MachineError, Problem
from subtext.evaluation.generate import generate_answers
from subtext.policy.base_model import BaseModel, resolve_base
from subtext.policy.hush import hush_libraries
from subtext.policy.load import load_adapters, load_base, load_tokenizer, read_adapter_record
from subtext.policy.precision import Precision, choose_precision, machine_facts
from subtext.prompts import build_messages

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Judge:
    """A loaded policy. Make one with `Judge.load(adapter)`; it may judge any number of clips."""

    model: Any
    tokenizer: Any
    prompt: PromptConfig
    cast: Cast
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
            max_new_tokens=record["max_new_tokens"],
        )

    def judge(
        self, clips: Sequence[Mapping[str, Any]], batch_size: int = 16
    ) -> list[dict[str, Any]]:
        """Judge `clips`, each a mapping with `utterance` and, where known, `context`,
        `context_speakers`, `speaker`, `prosody` and `clip_id`. Each is judged by itself.

        Returns one dict a clip: `label` ("sarcastic", "sincere" or None where the answer was
        malformed), `confidence` (0..1), `reasoning` (None where there was none), `well_formed`.
        """
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
        return build_messages(clip_id, {clip_id: _as_clip(clip)}, self.prompt, self.cast)


def _as_clip(clip: Mapping[str, Any]) -> dict[str, Any]:
    context = list(clip.get("context") or [])
    speakers = list(clip.get("context_speakers") or ["OTHER"] * len(context))
    if len(speakers) != len(context):
        problem = Problem(
            "clip", "context_speakers", speakers, f"does not fit {len(context)} lines of context",
            "Give one speaker a line, or none at all.",
        )  # fmt: skip
        raise DataError("Clip refused", [problem])
    return {
        "utterance": clip["utterance"],
        "speaker": clip.get("speaker") or "SPEAKER",
        "context": context,
        "context_speakers": speakers,
        "show": "",
        "prosody": clip.get("prosody") or None,
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
