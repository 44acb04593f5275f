"""A run directory with what `start_run` reads, that nothing was trained in."""

from __future__ import annotations

from pathlib import Path

from subtext import strict_json
from subtext.profiles import resolve
from subtext.run_dir import RunDir

DIGEST = "0123456789abcdef" * 4


def make_run(folder: Path, **overrides: object) -> RunDir:
    """Write config.json and split.json of profile `cpu` to `folder`."""
    run = RunDir(folder).create()
    config = resolve("cpu", {"data": {"root": "clips"}, **overrides})
    strict_json.write(run.config, {"profile": "cpu", "config": config.model_dump(mode="json")})
    strict_json.write(
        run.split,
        {"train": ["1_1", "1_2"], "held_out": ["2_1"], "judged": ["2_1"], "data_digest": DIGEST},
    )
    return run
