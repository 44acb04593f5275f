"""The clips: reading and validating MUStARD's `sarcasm_data.json` and what lies beside it.

- `sarcasm_data.json`: `{clip_id: {utterance, speaker, context, context_speakers, show, sarcasm}}`.
- `prosody.json`, optional: `{"schema", "extractor", "clips": {clip_id: record}}`, records as in
  `subtext/prosody/schema.py`.
- `pivot_set.json`, optional: `{"clips": {clip_id: {…}}}`; being a key is what makes a Pivot clip.
  One that `subtext data pivot` wrote must still fit the clips (`subtext/data/pivot/file.py`).

Every problem in the three files is gathered into one DataError; no clip is ever left out.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from subtext import strict_json
from subtext.data.folder import CLIPS_FILE, PIVOT_FILE, PROSODY_FILE, resolve_data_root
from subtext.data.json_files import read_json, shown_key
from subtext.data.pivot.file import pivot_problems
from subtext.data.run_split import split_problems
from subtext.errors import DataError, Problem
from subtext.prosody.reference import Reference
from subtext.prosody.schema import SCHEMA, record_problems
from subtext.run_dir import RunDir, load_config
from subtext.run_records import shape_error

_TEXT_FIELDS = ("utterance", "speaker", "show")
_LIST_FIELDS = ("context", "context_speakers")
_FIELDS = (*_TEXT_FIELDS, *_LIST_FIELDS, "sarcasm")
_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_WINDOWS_DEVICE = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

logger = logging.getLogger(__name__)


def load_run_scenarios(run: RunDir) -> dict[str, dict[str, Any]]:
    """Return the clips of a prepared run, their prosody described by the run's reference.

    Raises DataError when they are no longer those that the run was prepared on, or when split.json
    divides them in another way than the run's configuration.
    """
    config, split = load_config(run), run.require(run.split)
    root = config.data.root
    scenarios = load_scenarios(root)
    expected, found = split["data_digest"], data_digest(scenarios)
    if found != expected:
        problem = Problem(
            str(resolve_data_root(root)), "digest", found,
            f"is not {expected}: the clips changed since {run.run_id} was prepared",
            "Restore them, or start a new run.",
        )  # fmt: skip
        raise DataError("Data changed", [problem])
    if problems := list(split_problems(run.split, split, scenarios, config)):
        raise DataError("Run directory refused", problems)
    return load_reference(run).described_clips(scenarios)


def load_reference(run: RunDir) -> Reference:
    """Return what the run's prosody words stand for.

    Raises DataError where it is not on record, or not as it was written.
    """
    try:
        return Reference.of_record(run.require(run.prosody_reference))
    except ValidationError as error:
        raise shape_error(run.prosody_reference, error) from None


def load_scenarios(
    data_root: Path | str | None = None, *, with_pivot: bool = True
) -> dict[str, dict[str, Any]]:
    """Return `{clip_id: clip}` in the file's order.

    A clip has `utterance, speaker, context, context_speakers, show, sarcasm`, `prosody` (a record,
    or None where there is none) and `is_pivot`. `with_pivot=False` reads no Pivot Set, for who is
    about to make one. Raises DataError with every problem in the files.
    """
    root = resolve_data_root(str(data_root) if data_root is not None else "")
    problems: list[Problem] = []
    clips = read_clips(root / CLIPS_FILE, problems)
    prosody_file = _read_side_file(root / PROSODY_FILE, problems)
    pivot_file = _read_side_file(root / PIVOT_FILE, problems) if with_pivot else {}
    prosody, pivot = prosody_file.get("clips", {}), pivot_file.get("clips", {})
    if prosody_file:
        problems += _schema_problems(PROSODY_FILE, prosody_file)
    for clip_id, record in prosody.items():
        where = _where(PROSODY_FILE, clip_id)
        problems += _entry_problems(where, clip_id, record, clips)
        if isinstance(record, dict):
            problems += record_problems(where, record)
    for clip_id, entry in pivot.items():
        problems += _entry_problems(_where(PIVOT_FILE, clip_id), clip_id, entry, clips)
    measured = {
        clip_id: {**clip, "prosody": prosody.get(clip_id)} for clip_id, clip in clips.items()
    }
    if pivot_file and not problems:
        problems += pivot_problems(pivot_file, measured)
    if problems:
        raise DataError(f"Data in {root} refused", problems)
    logger.info(
        "%d clips from %s: %d with prosody, %d without (prosody: not available), %d in Pivot Set",
        len(clips), root, len(prosody), len(clips) - len(prosody), len(pivot),
    )  # fmt: skip
    return {clip_id: {**clip, "is_pivot": clip_id in pivot} for clip_id, clip in measured.items()}


def data_digest(scenarios: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the sha256 of all clips as canonical JSON.

    The order of the clips counts: the rows of the training set depend on it.
    """
    return strict_json.digest(list(scenarios.items()))


def read_clips(path: Path, problems: list[Problem]) -> dict[str, dict[str, Any]]:
    """Return the clips of a `sarcasm_data.json`; add what is wrong with them to `problems`."""

    def locate(keys: tuple[str, ...]) -> tuple[str, str]:
        where = _where(path.name, keys[0]) if keys else path.name
        return where, _dotted(keys[1:]) or "clip"

    n_before = len(problems)
    clips = read_json(path, locate, problems)
    if isinstance(clips, dict) and clips:
        for clip_id, clip in clips.items():
            problems += _clip_problems(_where(path.name, clip_id), clip_id, clip)
        return {clip_id: dict(clip) for clip_id, clip in clips.items() if isinstance(clip, dict)}
    if len(problems) == n_before:
        remedy = "It must map clip ids to clips, as in MUStARD."
        problems.append(Problem(path.name, "content", clips, "is no object with clips", remedy))
    return {}


def load_clips(path: Path) -> dict[str, dict[str, Any]]:
    """Return the clips of a `sarcasm_data.json`. Raises DataError with every problem in it."""
    problems: list[Problem] = []
    clips = read_clips(path, problems)
    if problems:
        raise DataError(f"Clips in {path} refused", problems)
    return clips


def _read_side_file(path: Path, problems: list[Problem]) -> dict[str, Any]:
    """Return the file's content, its `clips` a mapping; empty where there is none to read."""
    if not os.path.lexists(path):
        return {}

    def locate(keys: tuple[str, ...]) -> tuple[str, str]:
        if len(keys) > 1 and keys[0] == "clips":
            return _where(path.name, keys[1]), _dotted(keys[2:]) or "clip"
        return path.name, _dotted(keys) or "content"

    n_before = len(problems)
    content = read_json(path, locate, problems)
    if len(problems) > n_before and content is None:
        return {}
    if not isinstance(content, dict) or not isinstance(content.get("clips"), dict):
        found = content.get("clips") if isinstance(content, dict) else content
        remedy = 'Write {"clips": {"<clip id>": {…}}}.'
        problems.append(Problem(path.name, "clips", found, "is no object keyed by clip id", remedy))
        return {}
    return content


def _schema_problems(where: str, content: Mapping[str, Any]) -> Iterator[Problem]:
    schema, extractor = content.get("schema"), content.get("extractor")
    if schema != SCHEMA:
        remedy = f'Measure again: this version reads "{SCHEMA}".'
        yield Problem(where, "schema", schema, "is no known version", remedy)
    if not isinstance(extractor, str) or not extractor.strip():
        remedy = "Name what measured the records."
        yield Problem(where, "extractor", extractor, "is not a text", remedy)


def _entry_problems(
    where: str, clip_id: str, entry: object, clips: Mapping[str, Any]
) -> Iterator[Problem]:
    if clip_id not in clips:
        remedy = f"Remove it, or add the clip to {CLIPS_FILE}."
        yield Problem(where, "clip", clip_id, f"is not in {CLIPS_FILE}", remedy)
    if not isinstance(entry, dict):
        yield Problem(where, "clip", entry, "is not an object", "Write {…}, or remove the clip.")


def _clip_problems(where: str, clip_id: str, clip: Any) -> Iterator[Problem]:
    if not _is_safe_id(clip_id):
        yield Problem(
            where, "clip id", clip_id, "is unsafe as a file name",
            "Use at most 100 letters, digits, '_', '-' and '.', starting with a letter or digit, "
            "without '..', and no device name.",
        )  # fmt: skip
    if not isinstance(clip, dict):
        yield Problem(where, "clip", clip, "is not an object", f"Give it {', '.join(_FIELDS)}.")
        return
    for name in clip:
        if name not in _FIELDS:
            remedy = f"Remove it; known: {', '.join(_FIELDS)}."
            yield Problem(where, name, clip[name], "is no field of a clip", remedy)
    for name in _FIELDS:
        if name not in clip:
            yield Problem(where, name, None, "is missing", "Add it, as in MUStARD.")
    for name in _TEXT_FIELDS:
        if name in clip:
            yield from _text_problems(where, name, clip[name])
    for name in _LIST_FIELDS:
        if name in clip:
            yield from _list_problems(where, name, clip[name])
    yield from _agreement_problems(where, clip)


def _text_problems(where: str, name: str, value: Any) -> Iterator[Problem]:
    if not isinstance(value, str):
        yield Problem(where, name, value, "is not a text", "Write it in quotes.")
    elif not value.strip():
        yield Problem(where, name, value, "is empty", "Write the text, or remove the clip.")
    elif _CONTROL.search(value):
        yield Problem(where, name, value, "holds a control character", "Remove the character.")


def _list_problems(where: str, name: str, value: Any) -> Iterator[Problem]:
    if not isinstance(value, list):
        yield Problem(where, name, value, "is not a list of texts", 'Write ["…"], or [] for none.')
        return
    for index, item in enumerate(value):
        yield from _text_problems(where, f"{name}[{index}]", item)


def _agreement_problems(where: str, clip: Mapping[str, Any]) -> Iterator[Problem]:
    context, speakers = clip.get("context"), clip.get("context_speakers")
    if isinstance(context, list) and isinstance(speakers, list) and len(context) != len(speakers):
        yield Problem(
            where, "context_speakers", speakers,
            f"has {len(speakers)} entries for {len(context)} lines of context",
            "Name one speaker a line.",
        )  # fmt: skip
    if "sarcasm" in clip and not isinstance(clip["sarcasm"], bool):
        remedy = "Write true (sarcastic) or false (sincere)."
        yield Problem(where, "sarcasm", clip["sarcasm"], "is not true or false", remedy)


def _is_safe_id(clip_id: str) -> bool:
    return bool(
        _SAFE_ID.fullmatch(clip_id)
        and ".." not in clip_id
        and not clip_id.endswith(".")
        and not _WINDOWS_DEVICE.fullmatch(clip_id)
    )


def _dotted(keys: tuple[str, ...]) -> str:
    return ".".join(shown_key(key) for key in keys).replace(".[", "[")


def _where(file: str, clip_id: str) -> str:
    return f"{file}, clip {shown_key(clip_id)}"
