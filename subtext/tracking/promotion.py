"""Apply the gate to a registered version: record the decision, and move `champion` last of all."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from subtext import strict_json
from subtext.errors import TrackingError
from subtext.evaluation.gate import PROMOTE, decide, decision_of, reason
from subtext.run_dir import RunDir, load_config
from subtext.tracking.champion import promote
from subtext.tracking.gate_tags import PREFIX, decision_in, tags_of
from subtext.tracking.runs import mlflow_run_id
from subtext.tracking.store import client, mlflow_errors, tracking_uri

logger = logging.getLogger(__name__)


def apply_gate(run: RunDir) -> dict[str, Any]:
    """Decide whether the run's version becomes the champion; return what gate.json holds.

    The decision and every reason are tags `gate.…` of version and MLflow run, and gate.json is an
    artifact. The alias moves only on "promote", and only where the champion is still the one that
    the version was judged beside. A rerun changes nothing. Raises TrackingError, DataError for a
    run that was not evaluated.
    """
    evaluation = run.require(run.metrics)
    model = _registered_version(run)
    champion = evaluation["champion"]
    gate = decide(evaluation, load_config(run).gate)
    _record(run, model, gate)
    if gate["decision"] == PROMOTE:
        why = f"run {run.run_id} passed every rule"
        judged_against = champion["version"] if champion else None
        if objection := promote(model["name"], model["version"], judged_against, why):
            gate = decision_of([*gate["reasons"], reason("same_champion", False, objection)])
            _record(run, model, gate)
    for item in gate["reasons"]:
        logger.info("%s: %s", "passed" if item["passed"] else "FAILED", item["text"])
    logger.info("decision on version %s: %s", model["version"], gate["decision"])
    return gate


def recorded_gate(run: RunDir) -> dict[str, Any] | None:
    """Return gate.json where the decision in it is on record for the run's version, else None.

    Raises TrackingError, DataError.
    """
    model, gate = _registered_version(run), run.read(run.gate)
    with mlflow_errors(f"look up the decision on {run.run_id}"):
        version = client(tracking_uri()).get_model_version(model["name"], str(model["version"]))
    if gate is None or decision_in(version.tags) != gate["decision"]:
        return None
    return dict(gate)


def _registered_version(run: RunDir) -> dict[str, Any]:
    model: dict[str, Any] | None = run.read(run.tracking, {}).get("model")
    if model is None:
        raise TrackingError(
            f"{run.tracking}: model is missing, so {run.run_id} has no registered version to "
            "decide on. Register it first."
        )
    return model


def _record(run: RunDir, model: Mapping[str, Any], gate: Mapping[str, Any]) -> None:
    strict_json.write(run.gate, gate)
    tags = tags_of(gate)
    name, version = model["name"], str(model["version"])
    with mlflow_errors(f"take the decision on {run.run_id}"):
        store, run_id = client(tracking_uri()), mlflow_run_id(run)
        for key in _stale(store.get_run(run_id).data.tags, tags):
            store.delete_tag(run_id, key)
        for key in _stale(store.get_model_version(name, version).tags, tags):
            store.delete_model_version_tag(name, version, key)
        for key, value in tags.items():
            store.set_tag(run_id, key, value)
            store.set_model_version_tag(name, version, key, value)
        store.log_artifact(run_id, str(run.gate))


def _stale(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [key for key in before if key.startswith(PREFIX) and key not in now]
