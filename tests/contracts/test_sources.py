"""Fetching MUStARD: local servers stand for the authors' repository, the Hub and its storage."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import CommitOperationAdd, HfApi
from support.file_server import Fault, FileServer, file_server
from support.hub import local_hub
from typer.testing import CliRunner

from subtext import strict_json
from subtext.cli.main import app
from subtext.data.sources import fetch as sources_module
from subtext.data.sources.fetch import LOCK_FILE, Fetched, fetch, read_corpus, summary
from subtext.data.sources.hub_archive import HubArchive, resolve
from subtext.data.sources.patience import Patience
from subtext.errors import DataError, DownloadError

ROOT = Path(__file__).resolve().parents[2]
MUSTARD = ROOT.parent / "shared" / "mustard"
QUICK = Patience(silence_s=10, waits_s=(0.01,))
CLIP = {
    "utterance": "Sure.", "speaker": "MIRELA", "context": [], "context_speakers": [],
    "show": "HARBOUR", "sarcasm": True,
}  # fmt: skip
CLIPS = dict.fromkeys(("1_60", "1_70", "2_380"), CLIP)
ANNOTATIONS = json.dumps(CLIPS).encode()
FOLDS = b"pickled folds"
REPO, FILE = "MichiganNLP/MUStARD", "mmsd_raw_data.zip"
FIRST, SECOND = "1" * 40, "2" * 40
INFO = f"/api/datasets/{REPO}"


def archive(seed: int = 0) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        for clip_id in ("1_60", "2_380"):
            # A ZipInfo of a fixed date: the same bytes whenever this is called.
            member = zipfile.ZipInfo(f"utterances_final/{clip_id}.mp4")
            opened.writestr(member, f"sound {seed} of {clip_id}" * 4000)
        opened.writestr(zipfile.ZipInfo("context_final/1_60_c.mp4"), "context")
    return buffer.getvalue()


def resolved(revision: str) -> str:
    return f"/datasets/{REPO}/resolve/{revision}/{FILE}"


def info(revision: str, content: bytes, **lfs: Any) -> bytes:
    """The Hub's answer to `GET /api/datasets/<repo>?blobs=true`."""
    sha256 = hashlib.sha256(content).hexdigest()
    pointer = {"size": len(content), "sha256": sha256, "pointerSize": 134, **lfs}
    siblings = [{"rfilename": FILE, "size": len(content), "blobId": "0" * 40, "lfs": pointer}]
    answer = {"_id": "0", "id": REPO, "private": False, "downloads": 0, "likes": 0, "tags": []}
    return json.dumps({**answer, "sha": revision, "siblings": siblings}).encode()


def publish(server: FileServer, revision: str, content: bytes) -> None:
    """Make `content` the archive at the head of the Hub's repository."""
    server.files |= {INFO: info(revision, content), resolved(revision): content}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with file_server(annotations=ANNOTATIONS, folds=FOLDS) as running:
        publish(running, FIRST, archive())
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def written_sources(server: FileServer, path: Path, annotations: bytes = ANNOTATIONS) -> Path:
    def entry(name: str, content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        return f'url = "{server.url}/{name}"\nsize = {len(content)}\nsha256 = "{sha256}"\n'

    path.write_text(
        '[mustard]\ntitle = "A test"\ncitation = "Nobody"\nlicences = ["MIT"]\n'
        f'[mustard.files."sarcasm_data.json"]\n{entry("annotations", annotations)}'
        f'[mustard.files."split_indices.p"]\n{entry("folds", FOLDS)}'
        f'[mustard.clips]\nrepo = "{REPO}"\nfile = "{FILE}"\n',
        encoding="utf-8",
    )
    return path


@pytest.fixture
def sources(server: FileServer, tmp_path: Path) -> Path:
    return written_sources(server, tmp_path / "sources.toml")


def fetched(root: Path, sources: Path, **options: Any) -> Fetched:
    return fetch(root, sources=sources, patience=QUICK, **options)


def names(root: Path) -> list[str]:
    return sorted(
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and path.name != ".fetch.lock"
    )


def asked(server: FileServer) -> list[str]:
    return [path for path, _ in server.requests if not path.startswith("/api/agent")]


def test_the_shipped_sources_name_full_commits_and_the_files_of_that_commit() -> None:
    corpus = read_corpus()
    commit = "b34b5134beeec42a36cdac79330637de9cc9894e"
    base = f"https://raw.githubusercontent.com/soujanyaporia/MUStARD/{commit}/data/"
    assert {name: file.url for name, file in corpus.files.items()} == {
        name: base + name for name in ("sarcasm_data.json", "split_indices.p")
    }
    assert corpus.files["sarcasm_data.json"].size == 374629
    assert corpus.files["sarcasm_data.json"].sha256.startswith("ec9533032c5f")
    assert "P19-1455" in corpus.citation
    assert corpus.clips == HubArchive(repo=REPO, file=FILE)


@pytest.mark.skipif(not MUSTARD.is_dir(), reason="the real data is not beside the checkout")
def test_the_pinned_annotations_are_those_beside_the_checkout(tmp_path: Path) -> None:
    content = (MUSTARD / "sarcasm_data.json").read_bytes()
    pinned = read_corpus().files["sarcasm_data.json"]
    assert (len(content), hashlib.sha256(content).hexdigest()) == (pinned.size, pinned.sha256)


def test_a_fetch_brings_annotations_and_clips_and_says_what_is_missing(
    server: FileServer, sources: Path, tmp_path: Path
) -> None:
    root = tmp_path / "data root"
    found = fetched(root, sources)
    assert names(root) == [
        "audio/1_60.mp4", "audio/2_380.mp4", FILE, "sarcasm_data.json", LOCK_FILE,
        "split_indices.p",
    ]  # fmt: skip
    assert (root / "sarcasm_data.json").read_bytes() == ANNOTATIONS
    lock = strict_json.read(root / LOCK_FILE)
    assert lock["clips"]["revision"] == FIRST
    assert lock["clips"]["sha256"] == hashlib.sha256(archive()).hexdigest()
    shown = summary(found)
    assert "2 of 3" in shown
    assert "Without: 1_70" in shown
    assert f"python -m flows.data_flow --root '{root}'" in shown


def test_a_second_fetch_asks_nobody_and_changes_nothing(
    server: FileServer, sources: Path, tmp_path: Path
) -> None:
    fetched(tmp_path / "root", sources)
    server.requests.clear()
    found = fetched(tmp_path / "root", sources)
    assert not server.requests
    assert found.extraction is not None
    assert (found.extraction.n_clips, found.extraction.n_new) == (2, 0)


def test_annotations_alone_need_no_hub(server: FileServer, sources: Path, tmp_path: Path) -> None:
    found = fetched(tmp_path / "root", sources, annotations_only=True)
    assert names(tmp_path / "root") == ["sarcasm_data.json", "split_indices.p"]
    assert asked(server) == ["/annotations", "/folds"]
    assert "subtext data fetch mustard --root" in summary(found)


def test_a_fetch_that_broke_off_continues_with_the_revision_it_began(
    server: FileServer, sources: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    server.plan(resolved(FIRST), Fault(cut_after=30_000), Fault(status=503))
    with pytest.raises(DownloadError) as caught:
        fetched(root, sources)
    assert caught.value.retryable
    assert FILE not in names(root)
    publish(server, SECOND, archive(seed=2))
    found = fetched(root, sources)
    assert found.clips is not None
    assert found.clips.revision == FIRST
    assert (root / FILE).read_bytes() == archive()
    assert server.ranges(resolved(FIRST)) == [None, "bytes=30000-", "bytes=30000-"]
    assert asked(server).count(INFO) == 1


def test_another_hash_than_the_locked_one_is_refused_until_the_lock_is_deleted(
    server: FileServer, sources: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    fetched(root, sources)
    (root / FILE).unlink()
    changed = archive(seed=3)
    publish(server, FIRST, changed)
    with pytest.raises(DownloadError, match="content is another") as caught:
        fetched(root, sources)
    assert not caught.value.retryable
    assert "if you trust the change, delete that file" in str(caught.value)
    assert FILE not in names(root)
    (root / LOCK_FILE).unlink()
    found = fetched(root, sources)
    assert found.clips is not None
    assert found.clips.sha256 == hashlib.sha256(changed).hexdigest()
    assert b"sound 3" in (root / "audio/1_60.mp4").read_bytes()


def test_accepting_a_change_means_moving_the_old_archive_away(
    server: FileServer, sources: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    fetched(root, sources)
    (root / LOCK_FILE).unlink()
    publish(server, SECOND, archive(seed=2))
    with pytest.raises(DownloadError, match=r"is there already.*Move it away"):
        fetched(root, sources)
    assert (root / FILE).read_bytes() == archive()


def test_other_annotations_than_the_pinned_are_refused(
    server: FileServer, sources: Path, tmp_path: Path
) -> None:
    server.files["/annotations"] = ANNOTATIONS.replace(b"Sure", b"Oh no"[:4])
    with pytest.raises(DownloadError, match=r"sarcasm_data.json from .*content is another"):
        fetched(tmp_path / "root", sources)
    assert names(tmp_path / "root") == []


def zipped(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        for name in names:
            opened.writestr(zipfile.ZipInfo(name), "sound")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(zipped(), "of none of 3 clips", id="empty"),
        pytest.param(zipped("raw/1_60.mp4"), "of none of 3 clips", id="another layout"),
        pytest.param(zipped("../utterances/1_60.mp4"), "leads out of the folder", id="refused"),
    ],
)
def test_an_archive_that_brings_no_clip_is_refused(
    server: FileServer, sources: Path, tmp_path: Path, content: bytes, said: str
) -> None:
    publish(server, FIRST, content)
    with pytest.raises(DataError) as caught:
        fetched(tmp_path / "root", sources)
    assert caught.value.problems[0].value == str(tmp_path / "root" / FILE)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        pytest.param(b"{nope", "not JSON", id="no JSON"),
        pytest.param(b"[1]", "is no object with clips", id="a list"),
        pytest.param(b"{}", "is no object with clips", id="no clip"),
        pytest.param(
            json.dumps({"../../evil": CLIP}).encode(), "unsafe as a file name", id="unsafe id"
        ),
    ],
)
def test_annotations_that_are_no_clips_are_refused_before_the_hub_is_asked(
    server: FileServer, tmp_path: Path, annotations: bytes, said: str
) -> None:
    server.files["/annotations"] = annotations
    sources = written_sources(server, tmp_path / "sources.toml", annotations)
    with pytest.raises(DataError, match=said):
        fetched(tmp_path / "root", sources)
    assert INFO not in asked(server)


@pytest.mark.parametrize(
    ("lock", "words"),
    [
        ("{", "can't be read"),
        ("[]", "is no object"),
        ('{"schema": "subtext.sources-lock/2"}', "subtext.sources-lock/1"),
        ('{"schema": "subtext.sources-lock/1", "clips": {}}', "is missing"),
    ],
)
def test_a_lock_file_that_says_nothing_is_refused(
    server: FileServer, sources: Path, tmp_path: Path, lock: str, words: str
) -> None:
    root = tmp_path / "root"
    fetched(root, sources, annotations_only=True)
    (root / LOCK_FILE).write_text(lock)
    with pytest.raises(DataError) as caught:
        fetched(root, sources)
    assert words in str(caught.value)
    assert f"Delete {root / LOCK_FILE}" in str(caught.value)


def test_a_lock_file_of_another_archive_is_refused(
    server: FileServer, sources: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    fetched(root, sources)
    lock = (root / LOCK_FILE).read_text()
    (root / LOCK_FILE).write_text(lock.replace(REPO, "somebody/else"))
    with pytest.raises(DataError, match=f"is not {REPO}/{FILE}"):
        fetched(root, sources)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (info(FIRST, b"", size=3, sha256="xyz"), "string should match"),
        (info("main", archive()), "string should match"),
        (info(FIRST, archive()).replace(FILE.encode(), b"other.zip"), "has nothing of that name"),
        (info(FIRST, archive()).replace(b'"lfs"', b'"x"'), "a file without sha256"),
        (b"<html>", "not the Hub's"),
        (b"[]", "not the Hub's"),
        (b"{}", "not the Hub's"),
        (None, "does not tell"),
    ],
)
def test_an_answer_without_a_hash_is_refused_and_none_is_invented(
    server: FileServer, sources: Path, tmp_path: Path, answer: bytes | None, words: str
) -> None:
    del server.files[INFO]
    if answer is not None:
        server.files[INFO] = answer
    with pytest.raises(DownloadError) as caught:
        fetched(tmp_path / "root", sources)
    assert words in str(caught.value)
    assert not caught.value.retryable
    assert LOCK_FILE not in names(tmp_path / "root")


@pytest.mark.parametrize(
    "fault", [Fault(status=500), Fault(cut_after=5), Fault(status=429), Fault(status=421)]
)
def test_a_hub_in_trouble_is_asked_again(
    server: FileServer, sources: Path, tmp_path: Path, fault: Fault
) -> None:
    server.plan(INFO, fault, fault)
    with pytest.raises(DownloadError) as caught:
        fetched(tmp_path / "root", sources)
    assert caught.value.retryable
    server.plan(INFO, fault)
    assert fetched(tmp_path / "root", sources).clips is not None


def test_a_silent_hub_is_not_waited_for(
    server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subtext.data.sources.hub_archive._HUB_S", 0.3)
    server.plan(INFO, Fault(hang_after=0))
    with pytest.raises(DownloadError, match="does not answer") as caught:
        resolve(HubArchive(repo=REPO, file=FILE))
    assert caught.value.retryable


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "no address", "ftp://host"])
def test_an_endpoint_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(DownloadError, match="HF_ENDPOINT"):
        resolve(HubArchive(repo=REPO, file=FILE))


def test_the_token_is_sent_to_the_hub_alone(
    server: FileServer, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    with file_server(stored=archive()) as storage:
        server.plan(resolved(FIRST), Fault(redirect=f"{storage.url}/stored"))
        fetched(tmp_path / "root", sources)
        assert "authorization" not in storage.requests[0][1]
    sent = {path: headers.get("authorization") for path, headers in server.requests}
    assert {sent[INFO], sent[resolved(FIRST)]} == {"Bearer secret"}
    assert {sent["/annotations"], sent["/folds"]} == {None}
    assert "secret" not in (tmp_path / "root" / LOCK_FILE).read_text()


def test_a_token_that_can_not_be_sent_is_refused_unseen(
    server: FileServer, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "geheim\n\u00fc")
    with pytest.raises(DownloadError, match="HF_TOKEN") as caught:
        fetched(tmp_path / "root", sources)
    assert "geheim" not in str(caught.value)


def test_fetches_at_once_share_one_download(
    server: FileServer, sources: Path, tmp_path: Path
) -> None:
    found: list[Fetched] = []

    def one() -> None:
        found.append(fetched(tmp_path / "root", sources))

    threads = [threading.Thread(target=one) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 3
    assert asked(server).count(resolved(FIRST)) == 1


def test_the_local_hub_serves_the_archive_at_its_locked_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = archive(seed=7)
    with local_hub(tmp_path / "hub") as hub:
        api = HfApi(endpoint=hub.url, token=hub.token)
        api.create_repo(REPO, repo_type="dataset", private=True)
        operation = CommitOperationAdd(FILE, content)
        commit = api.create_commit(REPO, [operation], commit_message="clips", repo_type="dataset")
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", hub.token)
        with file_server(annotations=ANNOTATIONS, folds=FOLDS) as server:
            path = written_sources(server, tmp_path / "sources.toml")
            root = tmp_path / "root"
            clips = {
                "repo": REPO, "file": FILE, "revision": commit.oid, "size": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
            }  # fmt: skip
            root.mkdir()
            strict_json.write(
                root / LOCK_FILE, {"schema": "subtext.sources-lock/1", "clips": clips}
            )
            (root / f"{FILE}.part").write_bytes(content[:5000])
            strict_json.write(root / f"{FILE}.part.json", {"sha256": clips["sha256"]})
            found = fetched(root, path)
    assert found.extraction is not None
    assert found.extraction.n_clips == 2
    assert (root / FILE).read_bytes() == content


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[mustard", "can't be read"),
        ("", "mustard"),
        ("[mustard]\ntitle = 3\n", "citation"),
        ("[mustard]\nsurprise = 1\n", "surprise"),
    ],
)
def test_sources_that_are_not_what_they_must_be_are_refused(
    tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "sources.toml"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_corpus(path)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", ".hidden", "a/b", ""])
def test_sources_can_not_name_a_file_outside_the_folder(
    server: FileServer, sources: Path, name: str
) -> None:
    text = sources.read_text().replace('"split_indices.p"', f'"{name}"')
    sources.write_text(text)
    assert tomllib.loads(text)
    with pytest.raises(DataError):
        read_corpus(sources)


def test_without_a_checkout_the_missing_sources_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBTEXT_HOME", str(tmp_path))
    with pytest.raises(DataError, match="Start from a checkout"):
        read_corpus()


def test_the_command_shows_licence_citation_and_the_next_step(
    server: FileServer, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "checkout"
    (home / "data").mkdir(parents=True)
    (home / "data" / "sources.toml").write_text(sources.read_text())
    monkeypatch.setenv("SUBTEXT_HOME", str(home))
    monkeypatch.chdir(home)
    done = CliRunner().invoke(app, ["data", "fetch", "mustard", "--root", "data/here"])
    assert done.exit_code == 0, done.output
    for words in ("Cite: Nobody", "MIT", FIRST, "2 of 3", "flows.data_flow --root data/here"):
        assert words in done.output


def test_the_command_ends_with_2_and_no_traceback_when_it_can_not_go_on(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "subtext.cli", "data", "fetch", "mustard", "--root", "/dev/null/x"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "can't be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_refused_member_makes_the_command_end_with_1(
    server: FileServer, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = io.BytesIO(archive())
    with zipfile.ZipFile(buffer, "a") as opened:
        opened.writestr("../../utterances_final/1_70.mp4", "evil")
    publish(server, FIRST, buffer.getvalue())
    monkeypatch.setattr(sources_module, "read_corpus", lambda *_: read_corpus(sources))
    done = CliRunner().invoke(app, ["data", "fetch", "mustard", "--root", str(tmp_path / "root")])
    assert done.exit_code == 1, done.output
    assert "Refused: " in done.output
    assert "leads out of the folder" in done.output
