"""Taking clips out of an archive: only those, whatever else it holds or pretends."""

from __future__ import annotations

import io
import random
import stat
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subtext.data.sources import archive as archive_module
from subtext.data.sources.archive import Extraction, extract_clips
from subtext.errors import DataError, DownloadError
from subtext.progress import Progress

IDS = ("1_60", "2_380", "PERSON_12")
SOUND = random.Random(1).randbytes(5000)
OTHER = random.Random(2).randbytes(5000)
GOOD = "utterances_final/1_60.mp4"


def zipped(path: Path, members: list[tuple[str | zipfile.ZipInfo, bytes]]) -> Path:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        warnings.simplefilter("ignore")  # duplicates are meant
        for name, content in members:
            opened.writestr(name, content)
    return path


def extracted(tmp_path: Path, members: list[tuple[str | zipfile.ZipInfo, bytes]]) -> Extraction:
    return extract_clips(zipped(tmp_path / "raw.zip", members), tmp_path / "root" / "audio", IDS)


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("utterances_final/1_60.mp4", "as in the authors' archive"),
        ("mmsd_raw_data/utterances_final/1_60.mp4", "one folder deeper"),
        ("utterances/1_60.MP4", "another spelling"),
    ],
)
def test_a_clip_is_taken_wherever_its_folder_is(tmp_path: Path, name: str, reason: str) -> None:
    assert extracted(tmp_path, [(name, SOUND)]) == Extraction(1, ("2_380", "PERSON_12"), 1, ())
    assert files_below(tmp_path / "root") == ["audio/1_60.mp4"], reason
    assert (tmp_path / "root/audio/1_60.mp4").read_bytes() == SOUND


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("context_final/1_60_c.mp4", "a context clip"),
        ("context_final/1_60.mp4", "another folder"),
        ("1_60.mp4", "no folder"),
        ("utterances_final/9_99.mp4", "no clip of the annotations"),
        ("utterances_final/1_60.txt", "no video"),
        ("utterances_final/1_60.mp4/", "a folder"),
        ("utterances_final/1_60.mp4/x.mp4", "deeper than a clip"),
        ("__MACOSX/utterances_final/._1_60.mp4", "a Mac's shadow file"),
        ("utterances_final/.mp4", "no name"),
    ],
)
def test_what_belongs_to_no_clip_is_passed_over(tmp_path: Path, name: str, reason: str) -> None:
    found = extracted(tmp_path, [(name, SOUND)])
    assert found == Extraction(0, tuple(sorted(IDS)), 0, ()), reason
    assert not files_below(tmp_path / "root")


@pytest.mark.parametrize(
    ("member", "content", "words"),
    [
        ("../utterances_final/1_60.mp4", SOUND, "leads out"),
        ("utterances_final/../../utterances/1_60.mp4", SOUND, "leads out"),
        ("/utterances_final/1_60.mp4", SOUND, "leads out"),
        ("..\\..\\utterances\\1_60.mp4", SOUND, "leads out"),
        ("C:/utterances_final/1_60.mp4", SOUND, "leads out"),
        ("../../../etc/cron.d/evil", SOUND, "leads out"),
        (link(GOOD), b"/etc/passwd", "link"),
        (GOOD, b"", "empty"),
        (GOOD, bytes(10_000_000), "grows more than 100 times"),
    ],
)
def test_what_can_not_be_trusted_is_refused_by_name(
    tmp_path: Path, member: str | zipfile.ZipInfo, content: bytes, words: str
) -> None:
    found = extracted(tmp_path, [(member, content), ("utterances_final/2_380.mp4", SOUND)])
    (problem,) = found.refused
    assert words in problem.problem
    assert problem.value == (member if isinstance(member, str) else member.filename)
    assert (found.n_clips, found.missing) == (1, ("1_60", "PERSON_12"))
    assert files_below(tmp_path) == ["raw.zip", "root/audio/2_380.mp4"]


def test_two_members_for_one_clip_are_refused_unless_they_are_the_same(tmp_path: Path) -> None:
    found = extracted(
        tmp_path,
        [(GOOD, SOUND), (GOOD, OTHER), ("utterances_old/1_60.mp4", SOUND)],
    )
    (problem,) = found.refused
    assert "another sound of clip 1_60" in problem.problem
    assert (tmp_path / "root/audio/1_60.mp4").read_bytes() == SOUND


def patched(tmp_path: Path, change: Callable[[bytearray, int, int], None]) -> Extraction:
    """Extract after `change(bytes, local header, central header)` to a stored member's headers."""
    path = tmp_path / "raw.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as opened:
        opened.writestr(GOOD, SOUND)
    content = bytearray(path.read_bytes())
    change(content, content.index(b"PK\x03\x04"), content.index(b"PK\x01\x02"))
    path.write_bytes(content)
    return extract_clips(path, tmp_path / "root" / "audio", IDS)


def flip_content(content: bytearray, local: int, central: int) -> None:
    content[local + 100] ^= 1


def encrypt(content: bytearray, local: int, central: int) -> None:
    content[local + 6] |= 1
    content[central + 8] |= 1


def declare_less(content: bytearray, local: int, central: int) -> None:
    content[central + 24 : central + 28] = (100).to_bytes(4, "little")


def declare_more(content: bytearray, local: int, central: int) -> None:
    content[central + 24 : central + 28] = (6000).to_bytes(4, "little")


def declare_huge(content: bytearray, local: int, central: int) -> None:
    content[central + 24 : central + 28] = (2**31).to_bytes(4, "little")


def unknown_method(content: bytearray, local: int, central: int) -> None:
    content[local + 8] = content[central + 10] = 77


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (flip_content, "Bad CRC-32"),
        (encrypt, "encrypted"),
        (declare_less, "can't be read"),
        (declare_more, "can't be read"),
        (declare_huge, "more than"),
        (unknown_method, "can't be read"),
    ],
)
def test_a_member_that_is_not_what_it_declares_leaves_no_file(
    tmp_path: Path, change: Callable[[bytearray, int, int], None], words: str
) -> None:
    (problem,) = patched(tmp_path, change).refused
    assert words in problem.problem
    assert not files_below(tmp_path / "root")


def test_an_archive_that_unpacks_to_too_much_is_refused_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_module, "_MAX_TOTAL_BYTES", 9000)
    with pytest.raises(DataError, match="unpacks to more than 9000"):
        extracted(tmp_path, [(GOOD, SOUND), ("utterances_final/2_380.mp4", OTHER)])
    assert not files_below(tmp_path / "root")


def test_extraction_resumes_and_repairs(tmp_path: Path) -> None:
    members = [(f"utterances_final/{clip_id}.mp4", SOUND) for clip_id in IDS]
    audio = tmp_path / "root" / "audio"
    audio.mkdir(parents=True)
    (audio / "1_60.mp4").write_bytes(SOUND)
    (audio / "2_380.mp4").write_bytes(OTHER)  # same size, another content
    (audio / "PERSON_12.wav").write_bytes(b"a sound of the user's own")
    (audio / ".2_380.mp4.part").write_bytes(b"left by a kill")
    kept = (audio / "1_60.mp4").stat()
    assert extracted(tmp_path, members) == Extraction(3, (), 1, ())
    assert files_below(audio) == ["1_60.mp4", "2_380.mp4", "PERSON_12.wav"]
    assert (audio / "2_380.mp4").read_bytes() == SOUND
    assert (audio / "1_60.mp4").stat().st_mtime_ns == kept.st_mtime_ns


def test_progress_counts_the_clips_that_are_there(tmp_path: Path) -> None:
    members = [(f"utterances_final/{clip_id}.mp4", SOUND) for clip_id in IDS]
    archive, seen = zipped(tmp_path / "raw.zip", members), list[Progress]()
    (tmp_path / "1_60.mp4").write_bytes(SOUND)
    extract_clips(archive, tmp_path, IDS, seen.append)
    assert [(item.stage, item.step, item.max_steps) for item in seen] == [
        ("unpack", 2, 3),
        ("unpack", 3, 3),
    ]


def test_clips_larger_than_the_disk_are_refused_before_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subtext.data.sources.download._DISK_RESERVE_BYTES", 2**60)
    with pytest.raises(DownloadError, match="don't fit on the disk"):
        extracted(tmp_path, [(GOOD, SOUND)])


def test_a_folder_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("a file")
    with pytest.raises(DataError, match="can't be written"):
        extracted(tmp_path, [(GOOD, SOUND)])


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_damaged_archive_is_refused_or_gives_right_clips_only(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as opened:
        for clip_id in IDS:
            opened.writestr(f"utterances_final/{clip_id}.mp4", SOUND[:60])
    content = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    folder = tmp_path_factory.mktemp("damaged")
    end = data.draw(st.just(len(content)) | st.integers(0, len(content)))
    (folder / "raw.zip").write_bytes(content[:end])
    try:
        found = extract_clips(folder / "raw.zip", folder / "audio", IDS)
    except DataError:
        return
    written = files_below(folder / "audio")
    assert len(written) == found.n_clips
    assert {name.removesuffix(".mp4") for name in written} <= set(IDS)
    assert files_below(folder) == [*(f"audio/{name}" for name in written), "raw.zip"]
