"""Use a trained adapter: give it clips, get labels with confidence and reasoning."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subtext.answer import parse_final, reasoning_text
from subtext.config import ModelConfig, PromptConfig
from subtext.data.masking import Cast
from subtext.errors import DataError, MachineError, Problem
from subtext.evaluation.answer_cache import Answer, AnswerCache
from subtext.evaluation.generate import generate_answers
from subtext.evaluation.policy_digest import policy_digest
from subtext.evaluation.records import p_sarcastic
from subtext.judge_adapter import check_files, is_other, wrapped
from subtext.judge_clips import measured_clips
from subtext.policy.adapter_record import read_adapter_record
from subtext.policy.base_model import BaseModel, resolve_base
from subtext.policy.hush import hush_libraries
from subtext.policy.load import CHAT_TEMPLATE_OPTIONS, load_base, load_tokenizer
from subtext.policy.precision import Precision, choose_precision, machine_facts
from subtext.prompts import build_messages
from subtext.prosody.reference import Reference
from subtext.prosody.render import render_pitch_contour, render_prosody_features

logger = logging.getLogger(__name__)


class OtherBaseWarning(UserWarning):
    """The base model found here is not the one that the adapter was trained on."""


@dataclass(frozen=True)
class Judge:
    """A loaded policy. Make one with `Judge.load(adapter)`; it may judge any number of clips.

    `digest` tells it from every other policy, `base_digest` its base without the adapter.
    """

    model: Any
    tokenizer: Any
    prompt: PromptConfig
    cast: Cast
    reference: Reference
    max_new_tokens: int
    batch_size: int
    digest: str
    base_digest: str

    @classmethod
    def load(cls, adapter: Path, base_folder: str = "") -> Judge:
        """Load the adapter in folder `adapter` and the base model that its record names.

        For an adapter trained on a local folder, `$SUBTEXT_BASE_MODEL` or else `base_folder` says
        where that lies. Warns (`OtherBaseWarning`) where the base found has another digest than
        the recorded one. Raises DataError for a missing or damaged file of the adapter,
        MachineError where there is no base, or one that the adapter does not fit.
        """
        hush_libraries()
        record = read_adapter_record(adapter)
        check_files(adapter)
        base = _recorded_base(
            record["base"], os.environ.get("SUBTEXT_BASE_MODEL", "") or base_folder
        )
        precision = _recorded_precision(record)
        return cls(
            model=wrapped(load_base(base, precision), adapter, record["base"], base),
            tokenizer=load_tokenizer(base),
            prompt=PromptConfig.model_validate(record["prompt"]),
            cast=Cast.of_record(record["cast"]),
            reference=Reference.of_record(record["prosody_reference"]),
            max_new_tokens=record["max_new_tokens"],
            batch_size=record["batch_size"],
            digest=policy_digest(base, precision, adapter),
            base_digest=policy_digest(base, precision, None),
        )

    def judge(
        self, clips: Sequence[Mapping[str, Any]], batch_size: int | None = None
    ) -> list[dict[str, Any]]:
        """Judge `clips`, each a mapping with `utterance` and, where known, `context`,
        `context_speakers`, `speaker`, `clip_id`, and either `prosody`, a record, or `audio`, the
        path of the line's sound. Each is judged by itself.

        Returns one dict a clip: `label` ("sarcastic", "sincere" or None where the answer was
        malformed), `confidence` (0..1), `p_sarcastic` (0..1; 0.5 where malformed), `reasoning`
        (None where there was none), `answer` (all that was written), `well_formed`. In batches of
        the recorded size, unless `batch_size` is given, the clips of an evaluation get its answers
        exactly: rounding differs with what shares a batch. Raises DataError that lists everything
        wrong with any clip.
        """
        judged: dict[int, dict[str, Any]] = {}
        for batch in self.answers(measured_clips(clips), batch_size):
            for index, answer in batch:
                judged[index] = _judgement(answer.text)
        return [judged[index] for index in range(len(clips))]

    def answers(
        self,
        clips: Sequence[Mapping[str, Any]],
        batch_size: int | None = None,
        cache: AnswerCache | None = None,
        *,
        adapted: bool = True,
    ) -> Iterator[list[tuple[int, Answer]]]:
        """Yield (index, answer) batch by batch for `clips` without problems, sound measured.

        `cache` keeps answers between calls; without `adapted` the base alone answers. Raises
        DataError for a `batch_size` below 1, and before the first answer for clips that are longer
        than the model reads.
        """
        if batch_size is not None and batch_size < 1:
            problem = Problem("judge", "batch_size", batch_size, "is below 1", "Give 1 or more.")
            raise DataError("Clips refused", [problem])
        conversations = [self._messages(clip) for clip in clips]
        self._check_room(clips, conversations)
        with contextlib.nullcontext() if adapted else self.model.disable_adapter():
            yield from generate_answers(
                self.model,
                self.tokenizer,
                conversations,
                max_new_tokens=self.max_new_tokens,
                batch_size=batch_size or self.batch_size,
                cache=cache,
                policy=self.digest if adapted else self.base_digest,
            )

    def _check_room(
        self, clips: Sequence[Mapping[str, Any]], conversations: Sequence[list[dict[str, str]]]
    ) -> None:
        limit = getattr(self.model.config, "max_position_embeddings", None)
        if limit is None:
            return
        problems = []
        for index, (clip, messages) in enumerate(zip(clips, conversations, strict=True)):
            text = self.tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=False, **CHAT_TEMPLATE_OPTIONS
            )
            n_tokens = len(self.tokenizer(text, add_special_tokens=False)["input_ids"])
            if n_tokens + self.max_new_tokens > limit:
                problem = Problem(
                    f"clip {clip.get('clip_id') or index}", "tokens of its prompt", n_tokens,
                    f"with {self.max_new_tokens} for the answer is more than the model's {limit}",
                    "Shorten its line or context.",
                )  # fmt: skip
                problems.append(problem)
        if problems:
            raise DataError("Clips refused", problems)

    def delivery(self, clip: Mapping[str, Any]) -> str:
        """Return the lines of prosody that the model reads of `clip`, its sound measured."""
        clip_id, described = self._described(clip)
        prosody = described[clip_id]["prosody"]
        lines = render_prosody_features(clip_id, prosody), render_pitch_contour(clip_id, prosody)
        return "\n".join(lines)

    def _messages(self, clip: Mapping[str, Any]) -> list[dict[str, str]]:
        clip_id, described = self._described(clip)
        return build_messages(clip_id, described, self.prompt, self.cast)

    def _described(self, clip: Mapping[str, Any]) -> tuple[str, dict[str, dict[str, Any]]]:
        clip_id = str(clip.get("clip_id") or "unknown")
        return clip_id, self.reference.described_clips({clip_id: _as_clip(clip)})


def _judgement(text: str) -> dict[str, Any]:
    label, confidence, well_formed = parse_final(text)
    return {
        "label": label,
        "confidence": confidence,
        "p_sarcastic": p_sarcastic(label, confidence),
        "reasoning": reasoning_text(text),
        "answer": text,
        "well_formed": well_formed,
    }


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
    if is_other(record, base):
        warnings.warn(
            f"the adapter was trained on a base model with sha256 {record['sha256']}, and the one "
            f"found here has {base.sha256}: answers will differ from those on record",
            OtherBaseWarning,
            stacklevel=3,
        )
    return base
