"""How the demo corpus is delivered: styles that depend on the label, cues drawn from them, and
how well the label can be told from the cues.

Five cues, in standard units: pitch variation, final fall, longest pause, slowness, stress. A label
has three styles, each a mean of the five cues; a clip gets one style and unit variance round its
mean. The directions are arbitrary, and within a label the styles pull against each other: no cue
of sarcasm is universal, and nothing here was measured from a person. Slowness balances: sarcastic
clips are as much faster as their longer pauses cost, so that the duration tells nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from data.make_demo.voice import Delivery
from subtext.data.scenarios import load_scenarios
from subtext.data.scenes import scene_of
from subtext.prosody.frames import Floats
from subtext.prosody.reference import TERCILE_FIELDS

CUES = ("pitch variation", "final fall", "longest pause", "slowness", "stress")
# What of a record the prompt prints in words, but for the level, which needs a speaker's reference;
# the pauses' count last.
PROMPT_FIELDS = (*(name for name in TERCILE_FIELDS if name != "f0_level_st"), "pause_count")
# (weight, mean of the five cues)
STYLES: dict[bool, list[tuple[float, tuple[float, ...]]]] = {
    True: [
        (0.40, (1.45, 0.10, 0.05, -0.05, 0.85)),  # showy
        (0.33, (-0.30, 0.60, 1.50, 0.15, 0.20)),  # drawled
        (0.27, (0.35, 1.25, -0.05, -1.20, 0.85)),  # clipped
    ],
    False: [
        (0.42, (-1.15, -0.25, -0.50, 0.10, -0.80)),  # plain
        (0.33, (0.45, -1.05, -0.90, -0.30, -0.10)),  # eager
        (0.25, (-0.90, -0.35, 0.45, 1.00, -0.75)),  # halting
    ],
}
_SHORTEST_PAUSE_S = 0.14


def draw_cues(sarcasm: bool, n: int, rng: np.random.Generator) -> Floats:
    """Draw the cues of `n` clips with this label. Shape [n, 5], standard units."""
    weights, means = zip(*STYLES[sarcasm], strict=True)
    style = rng.choice(len(weights), size=n, p=weights)
    drawn: Floats = np.asarray(means)[style] + rng.standard_normal((n, len(CUES)))
    return drawn


def density(cues: Floats, sarcasm: bool) -> Floats:
    """Density of each row of `cues` under the label's mixture, up to a constant factor."""
    total = np.zeros(len(cues))
    for weight, mean in STYLES[sarcasm]:
        total += weight * np.exp(-((cues - mean) ** 2).sum(axis=1) / 2)
    return total


def delivery_of(cues: Floats, rng: np.random.Generator) -> Delivery:
    """Return the delivery that shows `cues` (shape [5]); everything else is drawn without them.

    In the middle: pitch SD 2.3 st, final movement -3 st/s, longest pause 0.3 s, loudness SD 4.4 dB.
    """
    variation, fall, pause, slowness, stress = cues.tolist()
    longest_s = min(0.30 + 0.16 * pause, 0.9)
    first, second = rng.permutation([rng.uniform(0.2, 0.45), rng.uniform(0.55, 0.8)]).tolist()
    shorter_s = float(rng.uniform(0.5, 0.9)) * longest_s if rng.random() < 0.25 else 0.0
    pauses = ((first, longest_s), (second, shorter_s))
    return Delivery(
        pitch_sd_st=2.3 * float(np.exp(0.32 * variation)),
        final_st_per_s=-3 - 6 * fall,
        pauses=tuple(pause for pause in pauses if pause[1] >= _SHORTEST_PAUSE_S),
        stretch=float(np.exp(0.14 * slowness)),
        loudness_sd_db=4.4 * float(np.exp(0.2 * stress)),
        stress=float(np.clip(0.6 + 0.5 * stress, 0, 2)),
        stress_at=float(rng.uniform(0.15, 0.8)),
        waves=tuple((float(rng.uniform(0.3, 1.4)), float(rng.random())) for _ in range(2)),
        level_st=float(rng.normal(0, 0.8)),
        level_db=float(rng.uniform(-3, 1)),
        noise_db=float(rng.uniform(-66, -58)),
        silence_s=(float(rng.uniform(0.06, 0.14)), float(rng.uniform(0.06, 0.14))),
        noise_seed=int(rng.integers(2**32)),
    )


def cue_ceiling(n: int, seed: int = 0) -> dict[str, float]:
    """How well labels can be told from the true cues of `n` newly drawn clips of each label.

    Accuracy of `ideal`, the Bayes rule, which knows every mixture, and of `cues`, logistic
    regression in five folds.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score

    rng = np.random.default_rng(seed)
    cues = np.concatenate([draw_cues(True, n, rng), draw_cues(False, n, rng)])
    labels = np.arange(2 * n) < n
    ideal = density(cues, True) > density(cues, False)
    return {
        "ideal": float((ideal == labels).mean()),
        "cues": float(cross_val_score(LogisticRegression(), cues, labels, cv=5).mean()),
    }


def record_ceiling(root: Path) -> dict[str, float]:
    """How well labels can be told from the measured records of the corpus in `root`.

    Accuracy of logistic regression in five folds that keep scenes together, mean of four draws of
    the folds: `records` on the numbers of `PROMPT_FIELDS`, `words` on their terciles alone, fitted
    on the known folds, `duration` on the duration alone.
    """
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import KBinsDiscretizer, StandardScaler

    clips = load_scenarios(root)
    scenes = list(scene_of(clips).values())
    labels = np.array([clip["sarcasm"] for clip in clips.values()])

    def numbers(*names: str) -> Floats:
        rows = [[clip["prosody"][name] or 0.0 for name in names] for clip in clips.values()]
        return np.array(rows, dtype=np.float64)

    def score(first: Any, inputs: Floats) -> float:
        model = make_pipeline(first, LogisticRegression(C=0.1))
        folds = [GroupKFold(5, shuffle=True, random_state=draw) for draw in range(4)]
        scores = [cross_val_score(model, inputs, labels, groups=scenes, cv=cv) for cv in folds]
        return float(np.mean(scores))

    terciles = KBinsDiscretizer(3, encode="onehot-dense", quantile_method="averaged_inverted_cdf")
    words = make_column_transformer((terciles, slice(0, -1)), remainder=StandardScaler())
    return {
        "records": score(StandardScaler(), numbers(*PROMPT_FIELDS)),
        "words": score(words, numbers(*PROMPT_FIELDS)),
        "duration": score(StandardScaler(), numbers("duration_s")),
    }
