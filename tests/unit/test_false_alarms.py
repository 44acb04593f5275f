"""By simulation: intervals cover the truth, and verdicts raise few false alarms."""

from __future__ import annotations

import numpy as np
import pytest

from subtext.evaluation.statistics import NOT_DISTINGUISHABLE, Resamples, compare, judged_family


def alike_in_scenes(
    rng: np.random.Generator, share: float, alike: float, scenes: int, size: int
) -> list[bool]:
    """Draw a flag a clip, true in `share` of them; `alike`: how often a clip takes its scene's."""
    of_scene = rng.random((scenes, 1)) < share
    own = rng.random((scenes, size)) < share
    return np.where(rng.random((scenes, size)) < alike, of_scene, own).ravel().tolist()


@pytest.mark.parametrize(("n_scenes", "size"), [(40, 2), (25, 4)])
def test_clustered_intervals_cover_and_unclustered_ones_do_not(n_scenes: int, size: int) -> None:
    rng = np.random.default_rng(1)
    n = n_scenes * size
    by_scene = Resamples.of([f"s{index // size}" for index in range(n)])
    by_clip = Resamples.of([f"c{index}" for index in range(n)])
    covered = []
    for _ in range(500):
        ours, theirs = (
            np.array(alike_in_scenes(rng, share, 0.7, n_scenes, size), int) for share in (0.7, 0.6)
        )
        bounds = [draw.interval(draw.mean(ours - theirs)) for draw in (by_scene, by_clip)]
        covered.append([found is not None and found[0] <= 0.1 <= found[1] for found in bounds])
    clustered, unclustered = np.mean(covered, axis=0)
    assert 0.92 <= clustered <= 0.98
    assert unclustered < clustered - 0.03


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize(
    ("n_scenes", "size", "alike", "discordant", "n_rivals"),
    [
        pytest.param(80, 1, 0.0, 0.3, 1, id="clips-apart"),
        pytest.param(80, 1, 0.0, 0.05, 1, id="few-discordant-clips"),
        pytest.param(8, 1, 0.0, 0.5, 1, id="eight-clips"),
        pytest.param(50, 2, 0.3, 0.3, 1, id="scenes-somewhat-alike"),
        pytest.param(20, 4, 1.0, 0.2, 1, id="scenes-all-alike"),
        pytest.param(80, 1, 0.0, 0.3, 4, id="four-comparisons"),
    ],
)
def test_false_alarms_of_the_verdicts_stay_under_5_percent(
    n_scenes: int, size: int, alike: float, discordant: float, n_rivals: int
) -> None:
    """Ours is as good as every rival. An alarm is any verdict but "not distinguishable"."""
    rng = np.random.default_rng(2)
    n_alarms = 0
    scenes = {f"c{index:03}": f"s{index // size}" for index in range(n_scenes * size)}
    for _ in range(300):
        rows = []
        for _ in range(n_rivals):
            differ = alike_in_scenes(rng, discordant, alike, n_scenes, size)
            ours = alike_in_scenes(rng, 0.5, alike, n_scenes, size)
            theirs = [hit != flip for hit, flip in zip(ours, differ, strict=True)]
            rows.append(
                compare(
                    dict(zip(scenes, ours, strict=True)),
                    dict(zip(scenes, theirs, strict=True)),
                    scenes,
                )
            )
        verdicts = {row["verdict"] for row in judged_family(rows)}
        n_alarms += verdicts != {NOT_DISTINGUISHABLE}
    assert n_alarms <= 15
