"""What a corpus folder holds and what is wrong with it: the report of `subtext data validate`.

A problem is what training refuses or what silently breaks a result: everything `load_scenarios`
names, too few clips of a label for any split, sound files of no clip, records of two extractors in
one file. A note is worth knowing and no fault: duplicates, quality flags, missing prosody. The
numbers are taken from the clips that can be read, however many of the others cannot.

The JSON form (`Report.as_json`) is `{"schema": "subtext.validate/1", "ok", "root", "counts",
"notes", "problems"}`; its keys stay, new ones may come. `counts` has `clips, sarcastic, sincere,
speakers, shows, prosody, audio, texts, scenes, pivot`, each described where it is counted below.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subtext import strict_json
from subtext.data.folder import (
    AUDIO_FOLDER,
    CLIPS_FILE,
    PIVOT_FILE,
    PROSODY_FILE,
    resolve_data_root,
)
from subtext.data.json_files import read_json
from subtext.data.scenarios import load_scenarios
from subtext.data.scenes import normalised, scene_of, shared_lines
from subtext.errors import DataError, Problem
from subtext.prosody.sound_files import sound_files

REPORT_SCHEMA = "subtext.validate/1"
_SHOWN = 5
_SHOWN_MISSING = 20
_LONGEST_TEXT = 500
_FEWEST_OF_A_LABEL = 2  # one to train on, one to hold out

Clips = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Report:
    """What was counted, noted and found wrong in one corpus folder."""

    root: str
    counts: dict[str, Any]
    notes: tuple[str, ...]
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """The report for machines; a problem's value that JSON can't hold becomes its text."""
        return {
            "schema": REPORT_SCHEMA,
            "ok": self.ok,
            "root": encodable(self.root),
            "counts": self.counts,
            "notes": list(self.notes),
            "problems": [
                {
                    "where": encodable(problem.where),
                    "field": encodable(problem.field),
                    "value": _json_value(problem.value),
                    "problem": encodable(problem.problem),
                    "remedy": encodable(problem.remedy),
                }
                for problem in self.problems
            ],
        }


def validate(root: Path | str | None = None) -> Report:
    """Return the report on a corpus folder. Raises DataError only where there is none, or a folder
    without `sarcasm_data.json`."""
    folder = resolve_data_root(str(root) if root is not None else "")
    if not (folder / CLIPS_FILE).exists():
        problem = Problem(
            str(folder), CLIPS_FILE, None, "is not there, so this is no corpus",
            "Fetch MUStARD (`python -m flows.data_flow --source mustard`), or name another folder.",
        )  # fmt: skip
        raise DataError("No data", [problem])
    problems: list[Problem] = []
    try:
        load_scenarios(folder)
    except DataError as error:
        problems += error.problems
    prosody, pivot = _content(folder / PROSODY_FILE), _content(folder / PIVOT_FILE)
    records = _objects(prosody.get("clips"))
    given = _content(folder / CLIPS_FILE)
    clips = {
        clip_id: {**clip, "prosody": records.get(clip_id)}
        for clip_id, clip in given.items()
        if _is_clip(clip)
    }
    files = _regular(sound_files(folder / AUDIO_FOLDER))
    if len(clips) == len(given):
        problems += _label_problems(clips)
    problems += _audio_problems(files, given)
    problems += _mixture_problems(records)
    counts = {
        "clips": len(clips),
        "sarcastic": sum(clip["sarcasm"] for clip in clips.values()),
        "sincere": sum(not clip["sarcasm"] for clip in clips.values()),
        "speakers": _frequencies(clip["speaker"] for clip in clips.values()),
        "shows": _frequencies(clip["show"] for clip in clips.values()),
        "prosody": _prosody_counts(prosody, clips),
        "audio": {
            "clips": sum(clip_id in files for clip_id in clips),
            "files": sum(map(len, files.values())),
        },
        "texts": _text_counts(clips),
        "scenes": _scene_counts(clips),
        "pivot": _pivot_counts(pivot),
    }
    return Report(str(folder), counts, tuple(_notes(counts, pivot)), tuple(problems))


def _notes(counts: Mapping[str, Any], pivot: Mapping[str, Any]) -> Iterator[str]:
    prosody, texts = counts["prosody"], counts["texts"]
    missing = counts["clips"] - prosody["clips"]
    if counts["clips"] and missing:
        yield f'Clips without prosody: {missing}; their prompt says "not available".'
    for clip_id, reason in list(prosody["missing"].items())[:_SHOWN_MISSING]:
        yield f"{clip_id} could not be measured: {reason}"
    if (hidden := len(prosody["missing"]) - _SHOWN_MISSING) > 0:
        yield f'{hidden} more could not be measured: "missing" in {PROSODY_FILE} says why.'
    if prosody["flags"]:
        yield f"quality flags in the prosody records: {most(prosody['flags'])}."
    if 0 < counts["audio"]["clips"] < counts["clips"]:
        yield f"Clips without a sound file: {counts['clips'] - counts['audio']['clips']}."
    if same := texts["identical"] - texts["minimal_pairs"]:
        yield f"{same} groups of clips have equal line, context and label: duplicates?"
    if pivot and "schema" not in pivot:
        yield f"{PIVOT_FILE} names no schema: not made by `subtext data pivot`, not checked."
    if not counts["pivot"]["present"] and prosody["clips"]:
        yield "there is no Pivot Set; `subtext data pivot` makes it."


def _prosody_counts(content: Mapping[str, Any], clips: Clips) -> dict[str, Any]:
    """Clips with a record, by label too; why others have none; quality flags; what measured."""
    measured = [clip for clip in clips.values() if clip["prosody"] is not None]
    n_sarcastic = sum(clip["sarcasm"] for clip in measured)
    missing = content.get("missing", {})
    return {
        "clips": len(measured),
        "sarcastic": n_sarcastic,
        "sincere": len(measured) - n_sarcastic,
        "missing": {
            encodable(clip_id): encodable(str(reason))
            for clip_id, reason in (missing.items() if isinstance(missing, dict) else ())
            if clip_id in clips and clips[clip_id]["prosody"] is None
        },
        "flags": _frequencies(
            flag
            for clip in measured
            if isinstance(flags := clip["prosody"].get("quality"), list)
            for flag in flags
            if isinstance(flag, str)
        ),
        "schema": encodable(str(content.get("schema") or "")),
        "extractor": encodable(str(content.get("extractor") or "")),
    }


def _text_counts(clips: Clips) -> dict[str, int]:
    """Groups of clips with the same line and context, and lines spoken with both labels."""
    by_text: dict[tuple[str, ...], list[bool]] = defaultdict(list)
    by_line: dict[str, set[bool]] = defaultdict(set)
    for clip in clips.values():
        line = normalised(clip["utterance"])
        by_text[line, *map(normalised, clip["context"])].append(clip["sarcasm"])
        by_line[line].add(clip["sarcasm"])
    groups = [labels for labels in by_text.values() if len(labels) > 1]
    return {
        "identical": len(groups),
        "minimal_pairs": sum(len(set(labels)) == 2 for labels in groups),
        "lines_with_both_labels": sum(len(labels) == 2 for labels in by_line.values()),
    }


def _scene_counts(clips: Clips) -> dict[str, int]:
    """Scenes as in `subtext.data.scenes`: clips that share a line of at least four words."""
    sizes = Counter(scene_of(clips).values())
    return {
        "scenes": len(sizes),
        "of_several_clips": sum(size > 1 for size in sizes.values()),
        "largest": max(sizes.values(), default=0),
        "shared_lines": len(shared_lines(clips)),
    }


def _pivot_counts(content: Mapping[str, Any]) -> dict[str, Any]:
    """Whether there is a Pivot Set, its clips, and how many of each stratum."""
    entries = _objects(content.get("clips"))
    strata = _frequencies(str(entry["stratum"]) for entry in entries.values() if "stratum" in entry)
    return {"present": bool(content), "clips": len(entries), "strata": strata}


def _regular(files: Mapping[str, list[Path]]) -> dict[str, list[Path]]:
    """Without folders and links to nothing, which only have the name of a sound."""
    kept = {clip_id: [path for path in paths if path.is_file()] for clip_id, paths in files.items()}
    return {clip_id: paths for clip_id, paths in kept.items() if paths}


def _label_problems(clips: Clips) -> Iterator[Problem]:
    """Both sides of every split need both labels."""
    n_sarcastic = sum(clip["sarcasm"] for clip in clips.values())
    n_sincere = len(clips) - n_sarcastic
    if clips and min(n_sarcastic, n_sincere) < _FEWEST_OF_A_LABEL:
        yield Problem(
            CLIPS_FILE, "sarcasm", f"{n_sarcastic} sarcastic, {n_sincere} sincere",
            "no split has both labels on both sides, so training refuses these clips",
            f"Add clips, {_FEWEST_OF_A_LABEL} of each label at least.",
        )  # fmt: skip


def _audio_problems(
    files: Mapping[str, list[Path]], clips: Mapping[str, object]
) -> Iterator[Problem]:
    orphans = [
        path.name for clip_id, paths in files.items() if clip_id not in clips for path in paths
    ]
    if orphans and clips:
        yield Problem(
            AUDIO_FOLDER, "files", orphans[:_SHOWN],
            f"{len(orphans)} sound file(s) belong to no clip in {CLIPS_FILE}",
            "Name a file as its clip id, or remove it.",
        )  # fmt: skip
    for clip_id, paths in files.items():
        if len(paths) > 1 and clip_id in clips:
            names, remedy = [path.name for path in paths], "Keep one."
            yield Problem(AUDIO_FOLDER, clip_id, names, "several sound files for one clip", remedy)


def _mixture_problems(records: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    """One extractor writes the same fields for every clip, null where it measured nothing."""
    kinds: dict[frozenset[str], list[str]] = defaultdict(list)
    for clip_id, record in records.items():
        kinds[frozenset(record)].append(clip_id)
    if len(kinds) > 1:
        usual = max(kinds, key=lambda kind: (len(kinds[kind]), sorted(kind)))
        others = sorted(clip_id for kind, ids in kinds.items() if kind != usual for clip_id in ids)
        fields = sorted(set().union(*kinds) - frozenset.intersection(*kinds))
        yield Problem(
            PROSODY_FILE, ", ".join(fields[:_SHOWN]), others[:_SHOWN],
            f"{len(others)} record(s) have other fields than the rest: two extractors in one file",
            "Measure all clips again with one version.",
        )  # fmt: skip


def _content(path: Path) -> dict[str, Any]:
    """The object in a file, {} where there is none: `load_scenarios` has said why."""
    value = read_json(path, lambda keys: (path.name, ".".join(keys)), []) if path.exists() else {}
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> dict[str, dict[str, Any]]:
    items = value.items() if isinstance(value, dict) else ()
    return {key: item for key, item in items if isinstance(item, dict)}


def _is_clip(clip: object) -> bool:
    return (
        isinstance(clip, dict)
        and all(isinstance(clip.get(name), str) for name in ("utterance", "speaker", "show"))
        and isinstance(clip.get("context"), list)
        and all(isinstance(line, str) for line in clip["context"])
        and isinstance(clip.get("sarcasm"), bool)
    )


def _frequencies(values: Iterator[str]) -> dict[str, int]:
    """How often each value occurs, the commonest first."""
    counts = Counter(map(encodable, values))
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def most(frequencies: Mapping[str, int]) -> str:
    """Return the commonest values with their counts, and how many more there are."""
    shown = ", ".join(f"{name} {count}" for name, count in list(frequencies.items())[:_SHOWN])
    hidden = len(frequencies) - _SHOWN
    return f"{shown} and {hidden} more" if hidden > 0 else shown


def encodable(text: str) -> str:
    """Return `text` as UTF-8 can hold it: "?" for half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode()


def _json_value(value: object) -> Any:
    try:
        strict_json.dumps(value).encode()
    except (TypeError, ValueError, RecursionError):
        return repr(value)[:_LONGEST_TEXT]
    return value
