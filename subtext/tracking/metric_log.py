"""The metrics of training as they are kept in the run directory, before MLflow is told.

One JSON line a record: `step`, `time_ms` (since 1970) and `metrics`, finite numbers by name. The
first value of a step stands, here as in MLflow: a resumed training repeats the steps after its
last checkpoint, and what it repeats is left out. `log_history.json` has the values of the steps
that the adapter really took.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from subtext import strict_json

logger = logging.getLogger(__name__)


class MetricRecord(BaseModel):
    """The metrics of one step; `time_ms` is when they were written, since 1970."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    step: int = Field(ge=0, strict=True)
    time_ms: int = Field(ge=0, strict=True)
    metrics: dict[str, FiniteFloat]


def read_metric_log(path: Path) -> list[MetricRecord]:
    """Return what `path` holds, oldest first; nothing where there is no such file.

    A line that can't be read, such as the one that a killed process did not finish, is left out
    with a warning. Raises OSError.
    """
    if not path.exists():
        return []
    records = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            records.append(_record(line))
        except ValueError as error:
            reason = str(error).splitlines()[0]
            logger.warning("%s: line %d is left out, it is no record: %s", path, number, reason)
    return records


class MetricLog:
    """The file at `path`, for the one process that works on the run.

    `earlier` is what processes before this one wrote.
    """

    def __init__(self, path: Path) -> None:
        self.earlier = read_metric_log(path)
        self._path = path
        self._known = {(name, record.step) for record in self.earlier for name in record.metrics}
        _end_last_line(path)

    def append(self, step: int, metrics: Mapping[str, float]) -> MetricRecord | None:
        """Write what of `metrics` is finite and has no value at `step` yet, and return it.

        It is in the file when this returns, whatever happens to this process. None where nothing
        was new. Raises OSError.
        """
        new = {
            name: float(value)
            for name, value in metrics.items()
            if math.isfinite(value) and (name, step) not in self._known
        }
        if not new:
            return None
        record = MetricRecord(step=step, time_ms=int(time.time() * 1000), metrics=new)
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(_line(record))
        self._known |= {(name, step) for name in new}
        return record


def _line(record: MetricRecord) -> str:
    content: dict[str, Any] = record.model_dump()
    return json.dumps(content, allow_nan=False, ensure_ascii=False, sort_keys=True) + "\n"


def _record(line: bytes) -> MetricRecord:
    """Raises ValueError (pydantic's too) for a line that is no record."""
    return MetricRecord.model_validate(strict_json.loads(line.decode()))


def _end_last_line(path: Path) -> None:
    """Have the next record start a line of its own: after one that lacks nothing but its end, and
    in place of one that was torn."""
    if not path.exists():
        return
    content = path.read_bytes()
    begun = content.rfind(b"\n") + 1
    if begun == len(content):
        return
    try:
        _record(content[begun:])
    except ValueError:
        os.truncate(path, begun)
    else:
        with path.open("ab") as stream:
            stream.write(b"\n")
