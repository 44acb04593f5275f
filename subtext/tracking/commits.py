"""Tie the MLflow run and the registered version to the Hub commits of the same run."""

from __future__ import annotations

from collections.abc import Sequence

from subtext.run_dir import RunDir
from subtext.tracking.runs import mlflow_run_id
from subtext.tracking.store import client, mlflow_errors, tracking_uri

_MISSING = "uploads_missing"


def tag_commits(run: RunDir, missing: Sequence[str] = ()) -> dict[str, str]:
    """Tag run and version with `hub.<upload>` = `<repository>@<commit>` for all that has landed,
    and the run with `uploads_missing` while uploads of these names are.

    Returns the tags `hub.…`. Raises TrackingError.
    """
    tags = {
        f"hub.{name}": f"{landed['repo_id']}@{landed['revision']}"
        for name, landed in run.read(run.published, {}).items()
    }
    model = run.read(run.tracking, {}).get("model")
    with mlflow_errors(f"take the commits of {run.run_id}"):
        store, run_id = client(tracking_uri()), mlflow_run_id(run)
        for key, value in tags.items():
            store.set_tag(run_id, key, value)
            if model:
                store.set_model_version_tag(model["name"], str(model["version"]), key, value)
        if missing:
            store.set_tag(run_id, _MISSING, ", ".join(missing))
        elif _MISSING in store.get_run(run_id).data.tags:
            store.delete_tag(run_id, _MISSING)
    return tags
