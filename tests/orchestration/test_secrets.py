"""A canary for a token and one for a password: after a run that failed to publish and a repeat that
did, neither is in anything that was written, sent or said."""

from __future__ import annotations

import base64
import random
import sqlite3
import string
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
from support.hub import local_hub
from support.mlflow_server import mlflow_server
from support.prefect_api import call
from support.tiny_run import settings, write_home

from subtext import strict_json
from subtext.run_dir import RunDir
from subtext.secrets_scan import find_any_path, find_local_path, local_folders

pytestmark = pytest.mark.slow

_RANDOM = random.Random("canary")
TOKEN = "hf_" + "".join(_RANDOM.choices(string.ascii_letters, k=34))
PASSWORD = "".join(_RANDOM.choices(string.ascii_letters, k=24)) + "@/1"
RESULTS_REPO = "local/canary-results"
LISTS = (
    "flows", "flow_runs", "task_runs", "logs", "artifacts", "deployments", "events", "variables",
    "block_documents",
)  # fmt: skip


def forms(secret: str) -> list[bytes]:
    """The secret as it is, in a URL, and inside base64 from each of the three places to start."""
    found = {secret.encode(), quote(secret, safe="").encode(), quote(secret).encode()}
    for before in range(3):
        inner = base64.b64encode(b"-" * before + secret.encode()).rstrip(b"=")
        found.add(inner[4 if before else 0 : -2])
    return sorted(found)


def files_below(*folders: Path) -> Iterator[tuple[str, bytes]]:
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink():
                yield str(path), path.read_bytes()


def tables(database: Path) -> Iterator[tuple[str, bytes]]:
    """Every table row by row: a database file may store a long text in pieces."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        assert names
        for (name,) in names:
            rows = connection.execute(f'SELECT * FROM "{name}"').fetchall()
            yield f"{database}, table {name}", repr(rows).encode()


def dumps(server) -> Iterator[tuple[str, bytes]]:
    """What the Prefect API answers about everything it has."""
    for name in LISTS:
        offset = 0
        body = {} if name == "events" else {"limit": 200}
        while found := call(server, "POST", f"/{name}/filter", {**body, "offset": offset}):
            yield f"API, {name}", strict_json.dumps(found).encode()
            if name == "events" or len(found) < 200:
                break
            offset += 200
    for kind in ("flow", "task"):
        for run in call(server, "POST", f"/{kind}_runs/filter", {"limit": 200}):
            states = call(server, "GET", f"/{kind}_run_states/?{kind}_run_id={run['id']}")
            yield f"API, states of {run['name']}", strict_json.dumps(states).encode()


def test_no_secret_is_left_anywhere(server, tmp_path):
    home, mlflow_home = write_home(tmp_path / "home"), tmp_path / "mlflow"
    with mlflow_server(mlflow_home) as mlflow, local_hub(tmp_path, token=TOKEN) as hub:
        address = mlflow.url.replace("//", f"//ann:{quote(PASSWORD, safe='')}@")
        env = {
            **hub.environment, "SUBTEXT_HOME": str(home), "HF_HOME": str(home / "hf"),
            "MLFLOW_TRACKING_URI": address,
        }  # fmt: skip
        knobs = settings(
            home, "canary-1", 2, training__save_steps="2", publish__adapter_repo="local/canary",
            publish__results_repo=RESULTS_REPO,
        )  # fmt: skip
        # A server that repeats what it was sent, as gateways do in their error pages.
        echo = {"error": f"refused: Authorization: Bearer {TOKEN}"}
        hub.fault("commit", repo=RESULTS_REPO, status=400, body=echo)
        python = [sys.executable, "-m"]
        failed = server.run([*python, "flows.train_flow", *knobs], env, 400)
        assert failed.returncode == 1, failed.stdout + failed.stderr
        assert "Bearer ***" in failed.stderr, failed.stderr
        done = server.run([*python, "flows.publish_flow", "--run", "canary-1"], env, 200)
        assert done.returncode == 0, done.stdout + done.stderr
        run = RunDir(home / "runs" / "canary-1")
        assert len(strict_json.read(run.published)) == 4
        published = {**hub.files("local/canary"), **hub.files(RESULTS_REPO, "spaces")}

    places = [
        ("output of the run", (failed.stdout + failed.stderr).encode()),
        ("output of the repeat", (done.stdout + done.stderr).encode()),
        *files_below(home, server.home, mlflow_home, hub.root),
        *tables(server.home / "prefect.db"),
        *tables(mlflow_home / "mlflow.db"),
        *dumps(server),
    ]
    names = [name for name, _ in places]
    for part in ("config.json", "prefect.db", "mlflow.db", "table log", "API, logs", "API, events",
                 str(hub.root)):  # fmt: skip
        assert any(part in name for name in names), f"{part} was not looked at"
    for secret in (TOKEN, PASSWORD):
        leaks = {
            (name, content.partition(form)[0][-80:])
            for name, content in places
            for form in forms(secret)
            if form in content
        }
        assert not leaks

    folders = local_folders(run.path, home, tmp_path)
    for name, content in published.items():
        text = content[:4096] if name.endswith(".safetensors") else content
        assert not find_local_path(text, folders), name
        assert name.endswith("tokenizer.json") or not find_any_path(text), name


@pytest.mark.parametrize("secret", [TOKEN, PASSWORD], ids=["token", "password"])
def test_the_search_finds_each_form(tmp_path, secret):
    for start in range(3):
        text = base64.b64encode(b"x" * start + secret.encode() + b"yz")
        assert any(form in text for form in forms(secret))
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        connection.execute("CREATE TABLE log (message)")
        connection.execute("INSERT INTO log VALUES (?)", ("x" * 4000 + secret,))
        connection.commit()
    assert any(secret.encode() in content for _, content in tables(tmp_path / "x.db"))
