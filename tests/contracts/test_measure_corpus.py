"""From sound files to prosody.json: real sounds, real processes, some of which are killed."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from support.audio_corpus import buzz, write_audio_corpus, write_wav

from subtext import strict_json
from subtext.data.measure import corpus as measure
from subtext.data.measure.corpus import Measured, MeasureError, measure_corpus
from subtext.data.scenarios import load_scenarios
from subtext.errors import ConfigError, DataError
from subtext.prosody.measure import audio_extractor, measure_clip

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("SUBTEXT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "prosody"


@pytest.fixture(scope="module")
def measured_once(tmp_path_factory) -> tuple[Path, Path]:
    """A corpus of four clips, measured by one process, and the cache it filled."""
    folder = tmp_path_factory.mktemp("measured")
    write_audio_corpus(folder / "corpus")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBTEXT_CACHE", str(folder / "cache"))
        measure_corpus(folder / "corpus", n_workers=1)
    return folder / "corpus", folder / "cache" / "prosody"


@pytest.fixture
def corpus(measured_once, cache, tmp_path) -> Path:
    """A copy of that corpus, with its prosody.json and cache."""
    shutil.copytree(measured_once[0], tmp_path / "corpus")
    shutil.copytree(measured_once[1], cache)
    return tmp_path / "corpus"


def ids_of(corpus: Path) -> list[str]:
    return list(strict_json.read(corpus / "sarcasm_data.json"))


def audio(corpus: Path, index: int) -> Path:
    return corpus / "audio" / f"{ids_of(corpus)[index]}.wav"


def test_every_clip_gets_the_record_of_measure_clip(corpus):
    clips = strict_json.read(corpus / "sarcasm_data.json")
    content = strict_json.read(corpus / "prosody.json")
    assert set(content) == {"schema", "extractor", "clips"}
    assert content["extractor"] == audio_extractor()
    assert content["clips"] == {
        clip_id: measure_clip(corpus / "audio" / f"{clip_id}.wav", clip["utterance"], clip_id)
        for clip_id, clip in clips.items()
    }
    assert all(clip["prosody"] for clip in load_scenarios(corpus).values())


def test_the_same_bytes_with_any_number_of_processes(corpus, cache):
    before = (corpus / "prosody.json").read_bytes()
    shutil.rmtree(cache)
    assert measure_corpus(corpus, n_workers=3).n_measured == 4
    assert (corpus / "prosody.json").read_bytes() == before


def test_nothing_is_measured_twice(corpus, cache, monkeypatch):
    def refuse(*_):
        raise AssertionError("a process was started")

    monkeypatch.setattr(measure, "measure_jobs", refuse)
    (corpus / "prosody.json").unlink()
    told = []
    result = measure_corpus(corpus, watcher=told.append)
    assert result == Measured(corpus / "prosody.json", 4, 0, 4, {})
    assert [(progress.stage, progress.step, progress.max_steps) for progress in told] == [
        ("measure", step, 4) for step in (1, 2, 3, 4)
    ]
    assert len(list(cache.rglob("*.json"))) == 4


def test_a_changed_sound_or_transcript_is_measured_again(corpus):
    write_wav(audio(corpus, 0), buzz(230))
    clips = strict_json.read(corpus / "sarcasm_data.json")
    clips[ids_of(corpus)[1]]["utterance"] = "Yes."
    strict_json.write(corpus / "sarcasm_data.json", clips)
    result = measure_corpus(corpus, n_workers=1)
    assert (result.n_measured, result.n_reused) == (2, 2)
    records = strict_json.read(corpus / "prosody.json")["clips"]
    assert records[ids_of(corpus)[0]]["f0_median_hz"] > 180
    assert records[ids_of(corpus)[1]]["n_syllables"] == 1


def test_other_code_or_decoder_never_meets_old_records(corpus, monkeypatch):
    from subtext.data.measure import cache as measure_cache

    monkeypatch.setattr(measure_cache, "_code_digest", lambda: "another version")
    assert measure_corpus(corpus, n_workers=1).n_measured == 4


CORRUPT = {
    "empty": b"",
    "cut": b'{"duration_s": 0.',
    "no-utf8": b"\xff\xfe",
    "not-a-number": b'{"duration_s": NaN}',
    "list": b"[]",
    "no-record": b"{}",
    "nested": b"[" * 100_000,
}


def test_a_corrupt_cache_entry_is_measured_again(corpus, cache):
    before = (corpus / "prosody.json").read_bytes()
    entries = sorted(cache.rglob("*.json"))
    contents = list(CORRUPT.values())
    for batch in (contents[:4], contents[4:]):
        for entry, content in zip(entries, batch, strict=False):
            entry.write_bytes(content)
        result = measure_corpus(corpus, n_workers=1)
        assert result.n_measured == len(batch), list(CORRUPT)
        assert (corpus / "prosody.json").read_bytes() == before


def test_a_valid_record_with_an_impossible_value_is_measured_again(corpus, cache):
    entry = next(cache.rglob("*.json"))
    strict_json.write(entry, {**strict_json.read(entry), "voiced_fraction": 7})
    assert measure_corpus(corpus, n_workers=1).n_measured == 1


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9000])


def _two(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".flac"))


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _zeros_for_ever(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


BAD = {
    "pipe": (_pipe, "no regular file"),
    "device": (_zeros_for_ever, "no regular file"),
    "missing": (Path.unlink, "no sound file"),
    "two files": (_two, "belong to one clip"),
    "empty": (lambda path: path.write_bytes(b""), "is empty"),
    "silent": (lambda path: write_wav(path, np.zeros(16_000)), "silent"),
    "text": (lambda path: path.write_text("Ceci n'est pas un son.\n"), "no sound"),
    "truncated": (_truncate, "truncated"),
    "folder": (_folder, "folder|directory|read"),
    "short": (lambda path: write_wav(path, buzz(150, 0.05)), "too short"),
}


@pytest.fixture
def spoilt(tmp_path) -> tuple[Path, dict[str, str]]:
    """A corpus with a bad file of every kind and two good ones; what each reason must say."""
    corpus = tmp_path / "spoilt"
    ids = write_audio_corpus(corpus, len(BAD) + 2)
    for (spoil, _), clip_id in zip(BAD.values(), ids, strict=False):
        spoil(corpus / "audio" / f"{clip_id}.wav")
    said = dict(zip(ids, (said for _, said in BAD.values()), strict=False))
    (corpus / "prosody.json").write_text("an old file, and broken\n")
    return corpus, said


def test_bad_files_are_all_listed_and_the_old_file_stays(spoilt):
    corpus, said = spoilt
    with pytest.raises(MeasureError) as caught:
        measure_corpus(corpus, n_workers=1)
    message = str(caught.value)
    for clip_id in said:
        assert clip_id in message
    assert (corpus / "prosody.json").read_text() == "an old file, and broken\n"
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == message, "Prefect pickles exceptions"


def test_with_allow_missing_the_rest_is_written_with_the_reasons(spoilt):
    import re

    corpus, said = spoilt
    result = measure_corpus(corpus, n_workers=2, allow_missing=True)
    assert list(result.failures) == list(said)
    for clip_id, pattern in said.items():
        assert re.search(pattern, result.failures[clip_id]), result.failures[clip_id]
    content = strict_json.read(corpus / "prosody.json")
    assert content["missing"] == result.failures
    assert str(corpus) not in (corpus / "prosody.json").read_text(), "names this machine's folder"
    scenarios = load_scenarios(corpus)
    assert [clip_id for clip_id, clip in scenarios.items() if clip["prosody"]] == [
        clip_id for clip_id in scenarios if clip_id not in said
    ]
    repeated = measure_corpus(corpus, n_workers=1, allow_missing=True)
    assert (repeated.n_reused, repeated.failures) == (2, result.failures)


def test_more_failures_than_an_error_shows_are_listed_too(tmp_path):
    ids = write_audio_corpus(tmp_path / "corpus", 30)
    for clip_id in ids[:25]:
        (tmp_path / "corpus" / "audio" / f"{clip_id}.wav").unlink()
    with pytest.raises(MeasureError) as caught:
        measure_corpus(tmp_path / "corpus", n_workers=1)
    assert all(f"clip {clip_id}:" in str(caught.value) for clip_id in ids[:25])


def test_no_record_at_all_is_a_failure_even_if_clips_may_be_missing(corpus):
    before = (corpus / "prosody.json").read_bytes()
    for clip_id in ids_of(corpus):
        (corpus / "audio" / f"{clip_id}.wav").unlink()
    with pytest.raises(MeasureError, match="4 problem"):
        measure_corpus(corpus, allow_missing=True)
    assert (corpus / "prosody.json").read_bytes() == before


@pytest.mark.parametrize(
    "old",
    ["not JSON", '{"schema": "subtext.prosody/1", "extractor": "x", "clips": {"gone": {}}}', ""],
    ids=["broken", "stale", "empty"],
)
def test_an_old_prosody_file_never_prevents_measuring(corpus, old):
    before = (corpus / "prosody.json").read_bytes()
    (corpus / "prosody.json").write_text(old)
    measure_corpus(corpus)
    assert (corpus / "prosody.json").read_bytes() == before


def test_clips_that_cannot_be_read_and_a_missing_folder_are_refused_together(corpus):
    (corpus / "sarcasm_data.json").write_text("{}")
    shutil.rmtree(corpus / "audio")
    with pytest.raises(DataError) as caught:
        measure_corpus(corpus)
    assert [problem.field for problem in caught.value.problems] == ["content", "audio"]


def test_a_negative_number_of_processes_is_refused(corpus):
    with pytest.raises(ConfigError, match=r"n_workers = -1.*0 for as many"):
        measure_corpus(corpus, n_workers=-1)


def test_a_cache_that_cannot_be_written_is_named(corpus, cache):
    shutil.rmtree(cache)
    cache.write_text("a file where the folder should be")
    with pytest.raises(DataError, match=r"prosody.*can't be written.*\$SUBTEXT_CACHE"):
        measure_corpus(corpus, n_workers=1)


# What follows needs a clip that kills, or a run that is killed. The processes of the pool import
# this script again, so that what it replaces is replaced in them too.
SCRIPT = """
import os, signal, sys, time
from pathlib import Path
from subtext.data.measure.corpus import measure_corpus
from subtext.prosody import measure

corpus, kind, n_workers = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
real = measure.measure_clip

def measure_clip(path, utterance=None, where="clip"):
    Path(f"{corpus}-workers", str(os.getpid())).touch()
    victim = path.stem == sys.argv[4]
    if kind == "kills" and victim:
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "kills once" and victim and not (corpus / "killed").exists():
        (corpus / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "raises" and victim:
        raise ValueError("a defect")
    if kind == "slow":
        time.sleep(0.4)
    return real(path, utterance, where)

measure.measure_clip = measure_clip
if __name__ == "__main__":
    Path(f"{corpus}-workers").mkdir(exist_ok=True)
    print(measure_corpus(corpus, n_workers=n_workers, allow_missing=True).failures)
"""


def script(corpus: Path, *arguments: object) -> list[str]:
    file = corpus.parent / "script.py"
    file.write_text(SCRIPT)
    return [sys.executable, str(file), str(corpus), *map(str, arguments)]


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def run(corpus: Path, *arguments: object) -> str:
    result = subprocess.run(
        script(corpus, *arguments),
        env={**ENVIRONMENT, "SUBTEXT_CACHE": os.environ["SUBTEXT_CACHE"]},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("n_workers", [1, 2])
@pytest.mark.parametrize(
    ("kind", "failures"),
    [
        pytest.param("kills", 1, id="a-clip-that-kills-every-process"),
        pytest.param("kills once", 0, id="a-process-that-dies-by-chance"),
        pytest.param("raises", 1, id="a-defect"),
    ],
)
def test_a_process_that_dies_takes_no_other_clip_with_it(tmp_path, kind, failures, n_workers):
    ids = write_audio_corpus(tmp_path / "corpus", 6)
    said = run(tmp_path / "corpus", kind, n_workers, ids[2])
    content = strict_json.read(tmp_path / "corpus" / "prosody.json")
    assert len(content["clips"]) == 6 - failures
    assert set(content.get("missing", {})) == ({ids[2]} if failures else set())
    assert ("ends the process" in said) is (kind == "kills")
    assert ("ValueError: a defect" in said) is (kind == "raises")


# Every process of the pool imports the script, and ends where that fails.
NO_PROCESS = """
import sys
from pathlib import Path

if __name__ != "__main__":
    import no_such_module
from subtext.data.measure.corpus import measure_corpus
from subtext.errors import MachineError

try:
    measure_corpus(Path(sys.argv[1]), n_workers=2)
except MachineError as error:
    print(error)
"""
UNGUARDED = NO_PROCESS.replace("    import no_such_module", "    pass")


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        pytest.param(NO_PROCESS, "No module named 'no_such_module'", id="import-error"),
        pytest.param(UNGUARDED, "bootstrapping phase", id="no-main-guard"),
    ],
)
def test_no_clip_is_blamed_where_no_process_can_start(tmp_path, content, cause):
    write_audio_corpus(tmp_path / "corpus", 6)
    (tmp_path / "script.py").write_text(content)
    result = subprocess.run(
        [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "corpus")],
        env={**ENVIRONMENT, "SUBTEXT_CACHE": os.environ["SUBTEXT_CACHE"]},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "1 problem(s)" in result.stdout
    assert "no process that measures can start" in result.stdout
    assert "clip" not in result.stdout
    assert cause in result.stderr


def test_a_killed_run_goes_on_where_it_stopped(tmp_path, cache):
    corpus = tmp_path / "corpus"
    ids = write_audio_corpus(corpus, 6)
    process = subprocess.Popen(
        script(corpus, "slow", 2, ""),
        env={**ENVIRONMENT, "SUBTEXT_CACHE": os.environ["SUBTEXT_CACHE"]},
    )
    wait_until(lambda: len(list(cache.rglob("*.json"))) >= 2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    workers = [int(file.name) for file in Path(f"{corpus}-workers").iterdir()]
    wait_until(lambda: not any(map(is_running, workers)))
    assert not (corpus / "prosody.json").exists()
    finished = {entry: entry.stat().st_mtime_ns for entry in cache.rglob("*.json")}
    assert 2 <= len(finished) < 6

    result = measure_corpus(corpus, n_workers=1)
    assert (result.n_reused, result.n_measured) == (len(finished), 6 - len(finished))
    assert all(entry.stat().st_mtime_ns == before for entry, before in finished.items())
    resumed = (corpus / "prosody.json").read_bytes()
    shutil.rmtree(cache)
    measure_corpus(corpus, n_workers=1)
    assert (corpus / "prosody.json").read_bytes() == resumed
    assert list(strict_json.loads(resumed.decode())["clips"]) == sorted(ids)


def wait_until(condition, limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
