"""The store of answers, and the digest by which a policy's answers are found in it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.disk import no_room

from subtext.errors import EvaluationError
from subtext.evaluation.answer_cache import Answer, AnswerCache
from subtext.evaluation.policy_digest import policy_digest
from subtext.policy.base_model import BaseModel
from subtext.policy.precision import Precision

ANSWERS = [Answer("<think>a</think>", True, 3), Answer("rambling", False, 128), Answer("", True, 1)]
KEYS = ["a", "b", "c"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / ".answers.sqlite"


def never() -> list[Answer]:
    raise AssertionError("every answer was known")


def recalled(path: Path, keys: list[str], generate: Callable[[], list[Answer]]) -> list[Answer]:
    with AnswerCache(path) as cache:
        return cache.recall(keys, generate)


class TestRecall:
    def test_what_was_kept_is_not_generated_again(self, path: Path) -> None:
        assert recalled(path, KEYS, lambda: ANSWERS) == ANSWERS
        assert recalled(path, KEYS[::-1], never) == ANSWERS[::-1]
        assert recalled(path, [], never) == []

    def test_first_answer_wins_over_a_batch_generated_whole(self, path: Path) -> None:
        recalled(path, ["a"], lambda: [ANSWERS[0]])
        others = [Answer("another", False, 9), ANSWERS[1]]
        assert recalled(path, ["a", "b"], lambda: others) == ANSWERS[:2]
        assert recalled(path, ["a", "b"], never) == ANSWERS[:2]

    @given(st.lists(st.builds(Answer, st.text(), st.booleans(), st.integers(0, 2**31)), max_size=5))
    def test_any_answer_comes_back_as_it_was(self, answers: list[Answer]) -> None:
        keys = [str(index) for index in range(len(answers))]
        with tempfile.TemporaryDirectory() as folder:
            recalled(Path(folder) / "answers", keys, lambda: answers)
            assert recalled(Path(folder) / "answers", keys, never) == answers

    def test_failed_generation_keeps_nothing(self, path: Path) -> None:
        def out_of_memory() -> list[Answer]:
            raise RuntimeError("out of memory")

        with pytest.raises(RuntimeError, match="out of memory"):
            recalled(path, KEYS, out_of_memory)
        assert recalled(path, KEYS, lambda: ANSWERS) == ANSWERS

    def test_full_disk_keeps_the_batch_whole_or_not_at_all(self, path: Path) -> None:
        recalled(path, ["small"], lambda: [ANSWERS[0]])
        large = [Answer("x" * 5000, True, 9) for _ in range(20)]
        keys = [str(index) for index in range(20)]
        full = pytest.raises(EvaluationError, match=r"\.answers\.sqlite.*Make room")
        with AnswerCache(path) as cache, no_room(path.stat().st_size + 20_000), full:
            cache.recall(keys, lambda: large)
        for key in keys:
            assert recalled(path, [key], lambda: [ANSWERS[2]]) == [ANSWERS[2]]
        assert recalled(path, ["small"], never) == [ANSWERS[0]]


WRITER = """
import sys
from pathlib import Path
from subtext.evaluation.answer_cache import Answer, AnswerCache

name, path = sys.argv[1:]
with AnswerCache(Path(path)) as cache:
    for batch in range(30):
        keys = [f"{batch}-{row}" for row in range(8)]
        answers = cache.recall(keys, lambda: [Answer(name, True, 1)] * len(keys))
        print(*(answer.text for answer in answers))
"""


def test_two_processes_at_once_read_the_same_answers(path: Path) -> None:
    commands = [[sys.executable, "-c", WRITER, name, str(path)] for name in ("one", "two")]
    writers = [subprocess.Popen(each, stdout=subprocess.PIPE, text=True) for each in commands]
    (first, _), (second, _) = [writer.communicate(timeout=60) for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0]
    assert first == second
    assert len(first.split()) == 240


def garbage(path: Path) -> None:
    path.write_bytes(b"\x00not a database\xff" * 500)


def whole(path: Path) -> bytearray:
    many = [Answer("x" * 2000, True, 5)] * 50
    recalled(path, [str(index) for index in range(50)], lambda: many)
    return bytearray(path.read_bytes())


def cut_in_half(path: Path) -> None:
    content = whole(path)
    path.write_bytes(content[: len(content) // 2])


def overwritten_page(path: Path) -> None:
    content = whole(path)
    content[4096:8192] = b"\xa5" * 4096
    path.write_bytes(content)


class TestUnfitFile:
    @pytest.mark.parametrize("spoil", [garbage, cut_in_half, overwritten_page])
    def test_damaged_file_is_moved_aside_and_a_new_one_begun(
        self, path: Path, spoil: Callable[[Path], None], caplog: pytest.LogCaptureFixture
    ) -> None:
        path.parent.mkdir()
        spoil(path)
        damaged = path.read_bytes()
        assert recalled(path, KEYS, lambda: ANSWERS) == ANSWERS
        assert recalled(path, KEYS, never) == ANSWERS
        assert path.with_name(".answers.sqlite.broken").read_bytes() == damaged
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert str(path) in caplog.text

    def test_empty_file_is_a_new_one(self, path: Path) -> None:
        path.parent.mkdir()
        path.touch()
        assert recalled(path, KEYS, lambda: ANSWERS) == ANSWERS

    @pytest.mark.parametrize(
        ("place", "reason"),
        [
            ("a_file/answers", "the folder is a file"),
            ("a_folder", "a folder has its name"),
        ],
    )
    def test_place_that_holds_no_file_is_named_with_a_remedy(
        self, tmp_path: Path, place: str, reason: str
    ) -> None:
        (tmp_path / "a_file").touch()
        (tmp_path / "a_folder").mkdir()
        with pytest.raises(EvaluationError) as caught:
            AnswerCache(tmp_path / place)
        message = str(caught.value)
        assert str(tmp_path / place) in message, reason
        assert "Make room in its folder" in message

    def test_file_that_may_only_be_read_is_named(self) -> None:
        # A file system that takes no new file from root either.
        with pytest.raises(EvaluationError, match="/proc/answers"):
            AnswerCache(Path("/proc/answers"))


BASE = BaseModel("path", "base", "", "abc", "/somewhere/base")
PRECISION = Precision("cpu", "bfloat16", "none", ("this CPU has bf16",))
SHAPE = {
    "r": 4, "lora_alpha": 4, "use_rslora": False, "target_modules": ["q_proj", "v_proj"],
    "base_model_name_or_path": "/somewhere/base", "revision": None, "peft_version": "0.21.2",
}  # fmt: skip


def adapter_of(folder: Path, weights: bytes = b"weights", **changes: object) -> Path:
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(weights)
    (folder / "adapter_config.json").write_text(json.dumps({**SHAPE, **changes}))
    return folder


class TestPolicyDigest:
    def test_another_function_is_another_policy(self, tmp_path: Path) -> None:
        adapter = adapter_of(tmp_path / "adapter")
        others = {
            "none": policy_digest(BASE, PRECISION, None),
            "adapter": policy_digest(BASE, PRECISION, adapter),
            "weights": policy_digest(BASE, PRECISION, adapter_of(tmp_path / "w", b"others")),
            "scale": policy_digest(BASE, PRECISION, adapter_of(tmp_path / "a", lora_alpha=8)),
            "scaling rule": policy_digest(
                BASE, PRECISION, adapter_of(tmp_path / "s", use_rslora=True)
            ),
            "base": policy_digest(
                BaseModel("path", "base", "", "def", BASE.location), PRECISION, adapter
            ),
            "device": policy_digest(BASE, Precision("cuda", "bfloat16", "none", ()), adapter),
            "dtype": policy_digest(BASE, Precision("cpu", "float32", "none", ()), adapter),
            "quantised": policy_digest(BASE, Precision("cpu", "bfloat16", "nf4", ()), adapter),
        }
        assert len(set(others.values())) == len(others), others

    def test_same_function_elsewhere_is_the_same_policy(self, tmp_path: Path) -> None:
        moved = adapter_of(
            tmp_path / "moved", base_model_name_or_path="a/base", revision="main",
            target_modules=["v_proj", "q_proj"], peft_version="0.22.0",
        )  # fmt: skip
        base = BaseModel("path", "base", "", "abc", "/elsewhere/base")
        precision = Precision("cpu", "bfloat16", "none", ("as configured",))
        expected = policy_digest(BASE, PRECISION, adapter_of(tmp_path / "adapter"))
        assert policy_digest(base, precision, moved) == expected
