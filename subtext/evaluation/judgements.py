"""The records of a pass, scored as its answers come in and kept in `judgements/<pass>.jsonl`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from subtext import strict_json
from subtext.data.clips import Scenarios
from subtext.errors import EvaluationError
from subtext.evaluation.answer_cache import Answer
from subtext.evaluation.records import score_completion
from subtext.progress import Progress, Watcher
from subtext.run_dir import RunDir
from subtext.run_records import unreadable

CHAMPION = "champion"
"""The pass of the registered champion, which lies apart from the run's own passes."""


def judged_records(
    run: RunDir,
    name: str,
    clip_ids: Sequence[str],
    scenarios: Scenarios,
    batches: Iterable[list[tuple[int, Answer]]],
    watcher: Watcher,
) -> list[dict[str, Any]]:
    """Score the answers to `clip_ids` that `batches` bring, each with its index; return the records
    in the order of `clip_ids`.

    Every batch is appended to the file of pass `name`, begun anew, and told to `watcher`. Raises
    EvaluationError where generation stops; the records so far stay in the file.
    """
    records: dict[str, dict[str, Any]] = {}
    path = run.records_of(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("w", encoding="utf-8") as stream:
            for batch in batches:
                for index, answer in batch:
                    clip_id = clip_ids[index]
                    record = score_completion(
                        clip_id, scenarios[clip_id], answer.text, answer.ended, answer.n_tokens
                    )
                    records[clip_id] = record
                    stream.write(json.dumps(record, allow_nan=False, sort_keys=True) + "\n")
                stream.flush()
                watcher(Progress(f"judge {name}", len(records), len(clip_ids)))
    except RuntimeError as error:  # torch's own errors, out of memory among them
        raise EvaluationError(
            f"pass {name!r} stopped after {len(records)} of {len(clip_ids)} clips: {error}. What "
            "was answered is kept; if memory ran out, make room, or judge in smaller batches "
            "(evaluation.batch_size)."
        ) from error
    return [records[clip_id] for clip_id in clip_ids]


def champion_records(run: RunDir) -> list[dict[str, Any]]:
    """Return the records of the champion on the clips of `run`; none where there is no champion, or
    champion.json says why it was not compared.

    Raises DataError where they can't be read.
    """
    champion = run.read(run.champion)
    if not champion or not champion["n_shared"]:
        return []
    path = run.records_of(CHAMPION)
    try:
        return [strict_json.loads(line) for line in path.read_text("utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
