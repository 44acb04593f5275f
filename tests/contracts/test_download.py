"""Downloads against real servers that misbehave, over real connections and real disks."""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.file_server import Fault, FileServer, file_server

from subtext.data.sources.download import Wanted, download
from subtext.data.sources.patience import Patience
from subtext.errors import DownloadError, Problem
from subtext.progress import Progress

ROOT = Path(__file__).resolve().parents[2]
CONTENT = random.Random(1).randbytes(300_000)
OTHER = random.Random(2).randbytes(300_000)
QUICK = Patience(silence_s=3, waits_s=(0.01, 0.01))
ONCE = Patience(silence_s=3, waits_s=())
CUT = Fault(cut_after=100_000)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server(file=CONTENT) as running:
        yield running


def wanted(server: FileServer, folder: Path, content: bytes = CONTENT, token: str = "") -> Wanted:
    sha256 = hashlib.sha256(content).hexdigest()
    return Wanted(f"{server.url}/file", folder / "clips.zip", len(content), sha256, token)


def failure(file: Wanted, patience: Patience = ONCE) -> DownloadError:
    with pytest.raises(DownloadError) as caught:
        download(file, patience=patience)
    assert not file.target.exists()
    problem = caught.value.problems[0]
    assert file.url in problem.where or file.target.name in problem.where
    assert problem.remedy.endswith(".")
    return caught.value


@pytest.mark.parametrize(
    ("faults", "ranges", "reason"),
    [
        ([], [None], "nothing goes wrong"),
        ([CUT], [None, "bytes=100000-"], "cut: continued where it broke"),
        ([CUT, CUT], [None, "bytes=100000-", "bytes=200000-"], "cut twice"),
        ([CUT, Fault(ignore_range=True)], [None, "bytes=100000-"], "no ranges: from the start"),
        ([Fault(chunked=True)], [None], "no length announced"),
        ([Fault(chunked=True, cut_after=9)], [None, "bytes=9-"], "ends early without an error"),
        ([Fault(status=500), Fault(status=503)], [None, None, None], "server in trouble"),
        ([Fault(status=429)], [None, None], "too many requests"),
        ([Fault(hang_after=50_000)], [None, "bytes=50000-"], "silence"),
        ([Fault(weak=True, cut_after=70_000)], [None, "bytes=70000-"], "weak ETag: no If-Range"),
        ([CUT, Fault(shift=7)], [None, "bytes=100000-", None], "another part than asked for"),
        ([CUT, Fault(status=416)], [None, "bytes=100000-", None], "range refused"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_can_recover_does(
    server: FileServer, tmp_path: Path, faults: list[Fault], ranges: list[str | None], reason: str
) -> None:
    server.plan("/file", *faults)
    file = wanted(server, tmp_path)
    assert download(file, patience=QUICK)
    assert file.target.read_bytes() == CONTENT
    assert server.ranges("/file") == ranges
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clips.zip"]


@pytest.mark.parametrize(
    ("faults", "content", "field", "words"),
    [
        ([], OTHER, "sha256", "content is another"),
        ([], CONTENT + b"x", "Content-Length", "is not 300001"),
        ([], CONTENT[:-1], "Content-Length", "is not 299999"),
        ([Fault(extra_length=5)], CONTENT, "Content-Length", "is not 300000"),
        ([Fault(chunked=True)], CONTENT[:-1], "bytes", "sends more than 299999"),
        ([Fault(encoding="gzip")], CONTENT, "Content-Encoding", "packed"),
        ([Fault(status=401)], CONTENT, "status", "refuses"),
        ([Fault(status=403)], CONTENT, "status", "refuses"),
        ([Fault(status=404)], CONTENT, "status", "refuses"),
        ([Fault(redirect="file:///etc/hostname")], CONTENT, "url", "leads nowhere"),
        ([Fault(redirect="/file")] * 30, CONTENT, "url", "leads nowhere"),
    ],
)  # fmt: skip
def test_what_cannot_recover_is_final(
    server: FileServer, tmp_path: Path, faults: list[Fault], content: bytes, field: str, words: str
) -> None:
    server.plan("/file", *faults)
    error = failure(wanted(server, tmp_path, content), QUICK)
    assert not error.retryable
    assert (error.problems[0].field, words in error.problems[0].problem) == (field, True)
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    "faults", [[Fault(status=500)], [Fault(hang_after=0)], [CUT], [Fault(status=408)]]
)
def test_when_patience_ends_the_error_says_that_another_try_can_help(
    server: FileServer, tmp_path: Path, faults: list[Fault]
) -> None:
    server.plan("/file", *(faults * 2))
    file = wanted(server, tmp_path)
    assert failure(file, Patience(silence_s=1.5, waits_s=(0.0,))).retryable
    assert len(server.requests) == 2
    assert download(file, patience=ONCE)


def test_nobody_listens(server: FileServer, tmp_path: Path) -> None:
    file = Wanted("http://127.0.0.1:9/file", tmp_path / "clips.zip", 5, "0" * 64)
    error = failure(file)
    assert error.retryable
    assert "connection failed" in str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.retryable, copy.problems, str(copy)) == (True, error.problems, str(error))


def test_a_long_file_over_a_bad_line_needs_no_more_patience(tmp_path: Path) -> None:
    content = random.Random(3).randbytes(6 * 2**20)
    with file_server(file=content) as server:
        server.plan("/file", *[Fault(cut_after=2**20 + 1)] * 5)
        file = wanted(server, tmp_path, content)
        assert download(file, patience=Patience(silence_s=5, waits_s=(0.0,)))
    assert file.target.read_bytes() == content


@pytest.mark.parametrize("fault", [Fault(), Fault(ignore_if_range=True)])
def test_a_file_that_changed_between_attempts_is_fetched_from_the_start(
    server: FileServer, tmp_path: Path, fault: Fault
) -> None:
    server.files["/file"] = OTHER
    server.plan("/file", CUT)
    failure(wanted(server, tmp_path))
    server.files["/file"] = CONTENT
    # Still the part of OTHER, though noted as one of CONTENT: only the ETag tells.
    note = tmp_path / "clips.zip.part.json"
    was, now = (hashlib.sha256(content).hexdigest() for content in (OTHER, CONTENT))
    note.write_text(note.read_text().replace(was, now))
    server.plan("/file", fault)
    assert download(wanted(server, tmp_path), patience=QUICK)
    assert server.requests[1][1]["if-range"].strip('"') == hashlib.md5(OTHER).hexdigest()


def test_a_part_that_holds_other_bytes_is_found_by_its_hash(
    server: FileServer, tmp_path: Path
) -> None:
    server.plan("/file", CUT)
    file = wanted(server, tmp_path)
    failure(file)
    file.part.write_bytes(OTHER[:100_000])
    assert download(file, patience=QUICK)
    assert server.ranges("/file") == [None, "bytes=100000-", None]


@pytest.mark.parametrize("note", ["", "[]", '{"sha256": "another"}', None])
def test_a_part_of_unknown_origin_is_not_continued(
    server: FileServer, tmp_path: Path, note: str | None
) -> None:
    file = wanted(server, tmp_path)
    file.part.write_bytes(OTHER[:1000])
    if note is not None:
        file.note.write_text(note)
    assert download(file, patience=ONCE)
    assert server.ranges("/file") == [None]


def test_a_complete_part_is_checked_and_named_without_a_request(
    server: FileServer, tmp_path: Path
) -> None:
    file = wanted(server, tmp_path)
    file.part.write_bytes(CONTENT)
    file.note.write_text(f'{{"sha256": "{file.sha256}"}}')
    assert download(file)
    assert not server.requests


def test_a_file_that_is_there_is_kept_when_right_and_left_alone_when_not(
    server: FileServer, tmp_path: Path
) -> None:
    file = wanted(server, tmp_path)
    file.target.write_bytes(CONTENT)
    assert not download(file)
    file.target.write_bytes(b"mine")
    with pytest.raises(DownloadError, match="Move it away"):
        download(file)
    assert file.target.read_bytes() == b"mine"
    assert not server.requests


def test_the_token_goes_to_its_own_host_only(server: FileServer, tmp_path: Path) -> None:
    with file_server(elsewhere=CONTENT) as cdn:
        server.plan("/file", Fault(redirect="/again"))
        server.plan("/again", Fault(redirect=f"{cdn.url}/elsewhere"))
        assert download(wanted(server, tmp_path, token="secret"), patience=ONCE)
        seen = [headers.get("authorization") for _, headers in server.requests + cdn.requests]
    assert seen == ["Bearer secret", "Bearer secret", None]


def test_resuming_through_a_redirect_asks_the_other_host_for_the_rest(
    server: FileServer, tmp_path: Path
) -> None:
    with file_server(elsewhere=CONTENT) as cdn:
        server.plan("/file", *[Fault(redirect=f"{cdn.url}/elsewhere")] * 2)
        cdn.plan("/elsewhere", CUT)
        assert download(wanted(server, tmp_path, token="secret"), patience=QUICK)
        assert cdn.ranges("/elsewhere") == [None, "bytes=100000-"]


def test_progress_counts_bytes_and_continues_where_the_part_ends(
    server: FileServer, tmp_path: Path
) -> None:
    server.plan("/file", CUT)
    seen: list[Progress] = []
    download(wanted(server, tmp_path), seen.append, QUICK)
    steps = [progress.step for progress in seen]
    assert steps == sorted(steps)
    assert (steps[0], steps[-1]) == (0, len(CONTENT))
    assert steps.count(100_000) == 2
    assert {(progress.stage, progress.max_steps) for progress in seen} == {("fetch", len(CONTENT))}


def test_a_file_larger_than_the_disk_is_refused_before_a_request(
    server: FileServer, tmp_path: Path
) -> None:
    file = Wanted(f"{server.url}/file", tmp_path / "clips.zip", 2**60, "0" * 64)
    with pytest.raises(DownloadError, match=r"don't fit on the disk.*--root") as caught:
        download(file)
    assert not caught.value.retryable
    assert not server.requests


def run_python(code: str, *arguments: str, wrapped_in: tuple[str, ...] = ()) -> str:
    command = [*wrapped_in, sys.executable, "-c", code, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


DOWNLOADER = """
import sys
from pathlib import Path
from subtext.data.sources.download import Wanted, download
from subtext.errors import DownloadError
from subtext.data.sources.patience import Patience
url, target, size, sha256 = sys.argv[1:5]
wanted = Wanted(url, Path(target), int(size), sha256)
patience = Patience(silence_s=30, waits_s=())
"""


def arguments(file: Wanted) -> tuple[str, ...]:
    return (file.url, str(file.target), str(file.size), file.sha256)


def test_after_kill_9_the_next_process_continues(server: FileServer, tmp_path: Path) -> None:
    server.plan("/file", Fault(hang_after=200_000))
    file = wanted(server, tmp_path)
    code = f"{DOWNLOADER}download(wanted, patience=patience)"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments(file)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    deadline = time.monotonic() + 30
    held = 0
    while held < 100_000 and time.monotonic() < deadline:
        time.sleep(0.02)
        held = file.part.stat().st_size if file.part.exists() else 0
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    assert held >= 100_000
    assert not file.target.exists()
    held = file.part.stat().st_size
    assert download(file, patience=ONCE)
    assert server.ranges("/file") == [None, f"bytes={held}-"]
    assert file.target.read_bytes() == CONTENT


FILLED = """
ballast = wanted.target.with_name("ballast")
def fill(progress):
    if progress.step and not ballast.exists():
        with ballast.open("wb", buffering=0) as stream:
            try:
                while stream.write(bytes(4096)):
                    pass
            except OSError:
                pass
try:
    download(wanted, fill, patience)
except DownloadError as error:
    print(error.retryable, error)
print(wanted.target.exists(), wanted.part.stat().st_size > 0)
ballast.unlink()
print(download(wanted, patience=patience))
"""


def test_a_disk_that_fills_up_meanwhile_is_named_and_the_part_is_kept(tmp_path: Path) -> None:
    content = random.Random(4).randbytes(2 * 2**20)
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=4m none '{disk}' && exec \"$@\""
    private = ("unshare", "--mount", "sh", "-c", mount, "sh")
    if not shutil.which("unshare") or subprocess.run([*private, "true"], check=False).returncode:
        pytest.skip("this machine does not allow mounting a small disk")
    with file_server(file=content) as server:
        file = wanted(server, disk, content)
        printed = run_python(DOWNLOADER + FILLED, *arguments(file), wrapped_in=private)
    first, *_ = printed.splitlines()
    assert first.startswith("False Not written")
    assert "No space left on device" in printed
    assert "it resumes" in printed
    assert printed.splitlines()[-2:] == ["False True", "True"]
    assert server.ranges("/file")[1] is not None


LIMITED = """
import resource
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (120_000, limits[1]))
try:
    download(wanted, patience=patience)
except DownloadError as error:
    print(error.retryable, error)
print(wanted.target.exists(), wanted.part.stat().st_size)
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
print(download(wanted, patience=patience))
"""


def test_a_write_that_the_system_refuses_keeps_the_part(server: FileServer, tmp_path: Path) -> None:
    file = wanted(server, tmp_path)
    printed = run_python(DOWNLOADER + LIMITED, *arguments(file)).splitlines()
    assert printed[0].startswith("False Not written")
    assert printed[-2:] == ["False 120000", "True"]
    assert server.ranges("/file") == [None, "bytes=120000-"]


def test_a_folder_without_rights_is_named(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "clips.zip.part").mkdir()
    with pytest.raises(DownloadError) as caught:
        download(wanted(server, tmp_path), patience=ONCE)
    assert isinstance(caught.value.problems[0], Problem)
    assert "can't be written" in str(caught.value)
