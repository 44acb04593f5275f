"""Brings the metrics of training to MLflow, from the file in which they are written first.

A thread sends, so that a store that is gone or never answers costs training nothing. What MLflow
has not got by the end of training is sent by `send_metrics`, which a later step calls.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from subtext.errors import SubtextError, TrackingError
from subtext.run_dir import RunDir
from subtext.tracking.metric_log import MetricLog, MetricRecord, read_metric_log
from subtext.tracking.runs import mlflow_run_id
from subtext.tracking.store import check_reachable, client, mlflow_errors, tracking_uri

logger = logging.getLogger(__name__)
_BATCH = 500  # MLflow takes at most 1000 metrics a request
_NAME_LIMIT = 250
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")
_RETRY_EVERY_S = 5.0


class MetricWriter:
    """Metrics of one run: written to its metric log at every `write`, then sent by a thread.

    What the log of an earlier process holds and MLflow lacks is sent too. Raises TrackingError for
    a run that was not started in MLflow.
    """

    def __init__(self, run: RunDir) -> None:
        self._sender = _Sender(mlflow_run_id(run))
        self._file = MetricLog(run.metric_log)
        self._unsent = list(self._file.earlier)
        self._changed = threading.Condition()
        self._closing = False
        self._error: SubtextError | None = None
        self._thread = threading.Thread(target=self._work, name="metrics", daemon=True)
        self._thread.start()

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write `metrics` of `step` to the run's file, and return without waiting for MLflow.

        NaN, infinity and what has a value at this step already are left out. Raises OSError where
        the file can't be written.
        """
        record = self._file.append(step, metrics)
        if record is not None:
            with self._changed:
                self._unsent.append(record)
                self._changed.notify_all()

    def close(self, limit_s: float = 20.0) -> None:
        """Wait until all is sent, `limit_s` seconds at most, and send no more.

        Raises TrackingError that says how many values MLflow may lack.
        """
        with self._changed:
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._unsent, limit_s)
            self._closing = True
            self._changed.notify_all()
            n_unsent = sum(len(record.metrics) for record in self._unsent)
            error = self._error
        if n_unsent:
            raise TrackingError(
                f"{n_unsent} metric values were not sent to MLflow within {limit_s:.0f} s; they "
                f"are kept and sent by a later step. {error or 'The store did not answer.'}"
            )

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._unsent or self._closing)
                if self._closing:
                    return
                batch = list(self._unsent)
            try:
                self._sender.send(batch)
            except SubtextError as error:
                self._wait_after(error)
                continue
            with self._changed:
                self._error = None
                del self._unsent[: len(batch)]
                self._changed.notify_all()

    def _wait_after(self, error: SubtextError) -> None:
        with self._changed:
            if self._error is None:
                logger.warning("Metrics are kept until MLflow can be reached again. %s", error)
            self._error = error
            self._changed.wait_for(lambda: self._closing, _RETRY_EVERY_S)


def send_metrics(run: RunDir) -> int:
    """Send what the run's metric log holds and MLflow lacks; return how many values that were.

    Raises TrackingError.
    """
    return _Sender(mlflow_run_id(run)).send(read_metric_log(run.metric_log))


class _Sender:
    """Sends records to one MLflow run, each value once, whatever an earlier process sent."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._uri = tracking_uri()
        self._store: Any = None
        self._there: dict[str, set[int]] = {}  # steps by metric

    def send(self, records: Sequence[MetricRecord]) -> int:
        try:
            return self._send(records)
        except SubtextError:
            self._store = None  # asks again what arrived: a request may fail after its effect
            raise

    def _send(self, records: Sequence[MetricRecord]) -> int:
        if not records:
            return 0
        if self._store is None:
            # cheap to ask, whereas a request to a dead host waits for the client's retries
            check_reachable(self._uri)
        with mlflow_errors(f"take metrics of run {self._run_id}"):
            if self._store is None:
                self._store, self._there = client(self._uri), {}
            new = self._missing(records)
            for start in range(0, len(new), _BATCH):
                batch = new[start : start + _BATCH]
                self._store.log_batch(self._run_id, metrics=batch, synchronous=True)
                for item in batch:
                    self._there[item.key].add(item.step)
        return len(new)

    def _missing(self, records: Sequence[MetricRecord]) -> list[Any]:
        from mlflow.entities import Metric

        new: dict[tuple[str, int], Any] = {}
        for record in records:
            for name, value in record.metrics.items():
                key = _NOT_IN_NAMES.sub("_", name)[:_NAME_LIMIT]
                if record.step not in self._steps_there(key):
                    new.setdefault(
                        (key, record.step), Metric(key, value, record.time_ms, record.step)
                    )
        return list(new.values())

    def _steps_there(self, key: str) -> set[int]:
        if key not in self._there:
            history = self._store.get_metric_history(self._run_id, key)
            self._there[key] = {metric.step for metric in history}
        return self._there[key]
