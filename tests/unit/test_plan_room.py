"""Free memory in a container, and disk space against what a run writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from subtext.plan.room import disk_needs, disk_problems, free_memory
from subtext.plan.shape import ModelShape
from subtext.plan.words import dollars, gigabytes, hours
from subtext.profiles import resolve

SHAPE = ModelShape(128, 256, 3, 4, 4, 32, 1000, tied=True, max_positions=4096)


@pytest.mark.parametrize(
    ("limit", "used", "free"),
    [
        pytest.param("3000", "1000", 2000, id="a container with a limit"),
        pytest.param("max", "1000", None, id="a container without"),
        pytest.param(None, None, None, id="no container"),
        pytest.param(str(2**60), "0", None, id="a limit above the machine's memory"),
    ],
)
def test_a_container_has_what_its_limit_leaves(
    tmp_path: Path, limit: str | None, used: str | None, free: int | None
) -> None:
    if limit is not None and used is not None:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.current").write_text(f"{used}\n")
    found = free_memory("cpu", tmp_path)
    if free is not None:
        assert found == free
    else:
        assert found > 2**20, "as the machine says"


def needs(tmp_path: Path, knobs: dict[str, Any], *, on_disk: bool) -> list[dict[str, Any]]:
    return disk_needs(
        resolve("demo", knobs), SHAPE, on_disk=on_disk,
        runs_dir=tmp_path / "not" / "yet", base_dir=tmp_path / "cache",
    )  # fmt: skip


def test_a_run_needs_more_with_more_checkpoints_and_a_base_to_fetch(tmp_path: Path) -> None:
    [few] = needs(tmp_path, {"training": {"save_steps": 26}}, on_disk=True)
    [many, base] = needs(tmp_path, {"training": {"save_steps": 5}}, on_disk=False)
    assert many["needed_bytes"] > few["needed_bytes"]
    assert base["needed_bytes"] == 2 * SHAPE.parameters
    assert few["free_bytes"] > 0, "that of the nearest folder that is there"


def test_checkpoints_are_counted_up_to_the_limit_and_one_in_making(tmp_path: Path) -> None:
    knobs = {"training": {"save_steps": 1, "save_total_limit": 3}}
    assert "4 checkpoints" in needs(tmp_path, knobs, on_disk=True)[0]["for"]


@pytest.mark.parametrize(
    ("needed", "free", "n_problems"),
    [
        pytest.param([100], 200, 0, id="room"),
        pytest.param([300], 200, 1, id="none"),
        pytest.param([150, 150], 200, 1, id="one file system for both"),
    ],
)
def test_a_disk_without_room_is_a_problem(
    tmp_path: Path, needed: list[int], free: int, n_problems: int
) -> None:
    there = [
        {"path": str(tmp_path / str(n)), "needed_bytes": n, "free_bytes": free, "for": "x"}
        for n in needed
    ]
    problems = list(disk_problems(there))
    assert len(problems) == n_problems
    assert all("Make room" in problem.remedy for problem in problems)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (gigabytes(2_490_368_000), "2.5 GB"), (gigabytes(85_024_512), "85 MB"),
        (hours(119), "119 s"), (hours(300), "5 min"), (hours(5025), "1 h 24 min"),
        (dollars(12.345), "$12.35"), (dollars(0.0042), "$0.0042"),
    ],
)  # fmt: skip
def test_sizes_times_and_prices_read_well(text: str, said: str) -> None:
    assert text == said
