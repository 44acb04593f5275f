"""Sends metrics to an MLflow run while training runs, and survives a lost connection."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Mapping
from typing import Any

from subtext.errors import SubtextError, TrackingError
from subtext.tracking.store import check_reachable, client, mlflow_errors, tracking_uri

_log = logging.getLogger(__name__)
_BATCH = 500  # MLflow takes at most 1000 metrics a request
_NAME_LIMIT = 250
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")
_RETRY_EVERY_S = 2.0


class MetricWriter:
    """Metrics of one MLflow run, sent at every `write`; what can't be sent waits for the next one.

    A resumed run repeats the steps after its last checkpoint: for each metric, steps up to the
    last one that MLflow already holds are left out.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._uri = tracking_uri()
        self._pending: list[Any] = []
        self._store: Any = None
        self._last_step: dict[str, int] = {}
        self._lost = False

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send `metrics` of `step` and whatever is still unsent. NaN and infinity are left out.

        Never raises because MLflow can't be reached: training is worth more than its curves.
        """
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1000)
        self._pending += [
            Metric(_NOT_IN_NAMES.sub("_", name)[:_NAME_LIMIT], float(value), now_ms, step)
            for name, value in metrics.items()
            if math.isfinite(value)
        ]
        try:
            self._send()
        except SubtextError as error:
            if not self._lost:
                _log.warning("Metrics are kept until MLflow can be reached again. %s", error)
            self._lost = True

    def close(self, limit_s: float = 20.0) -> None:
        """Send what is unsent, trying for about `limit_s` seconds.

        Raises TrackingError that says how many values MLflow lacks.
        """
        deadline = time.monotonic() + limit_s
        while self._pending:
            try:
                self._send()
            except SubtextError as error:
                if time.monotonic() + _RETRY_EVERY_S > deadline:
                    raise TrackingError(
                        f"{len(self._pending)} metric values of run {self._run_id} were not sent "
                        f"to MLflow; log_history.json holds them all. {error}"
                    ) from error
                self._lost = True
                time.sleep(_RETRY_EVERY_S)

    def _send(self) -> None:
        if self._lost:
            # cheap to ask, whereas a request to a dead host holds training for its retries
            check_reachable(self._uri)
        with mlflow_errors(f"take metrics of run {self._run_id}"):
            if self._store is None:
                store = client(self._uri)
                self._last_step = _last_steps(store, self._run_id)
                self._store = store
            while self._pending:
                batch = self._pending[:_BATCH]
                new = [item for item in batch if item.step > self._last_step.get(item.key, -1)]
                if new:
                    self._store.log_batch(self._run_id, metrics=new, synchronous=True)
                self._last_step |= {item.key: item.step for item in new}
                del self._pending[:_BATCH]
        self._lost = False


def _last_steps(store: Any, run_id: str) -> dict[str, int]:
    return {
        key: max(metric.step for metric in store.get_metric_history(run_id, key))
        for key in store.get_run(run_id).data.metrics
    }
