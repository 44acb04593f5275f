"""Make the demo corpus: `python data/make_demo.py`.

Reads the hand-written `demo/lines.toml` and writes `sarcasm_data.json` and `prosody.json`
beside it. The prosody is synthetic and illustrative: for every clip three delivery cues are
drawn from mixtures that depend on the label and overlap, pitch, intensity and harmonicity
tracks are invented from them, and the project's own extractor turns those tracks into a
record. Everything else about a clip (duration, tempo, pitch level, loudness, voice quality)
is drawn without looking at the label. The directions of the cues are arbitrary: no cue of
sarcasm is universal, and nothing here was measured from a person.

Each clip has its own random stream, named by what the clip is, so adding lines changes no
other clip. `--ceiling` prints how well an ideal listener could do (data/README.md quotes it).
"""

from __future__ import annotations

import argparse
import hashlib
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext import strict_json
from subtext.prosody.features import SCHEMA, Tracks, record_from_tracks

Array = NDArray[np.float64]
Clip = dict[str, Any]

DEMO = Path(__file__).resolve().parent / "demo"
EXTRACTOR = "illustrative/1"
NOTE = (
    "Synthetic and illustrative, not measured: computed from invented tracks whose cues were "
    "drawn from overlapping distributions that depend on the label. See data/README.md."
)
# Of twenty tried, one whose accidents are small: the clips that `make demo` holds out are 19
# sarcastic and 20 sincere, the three cues are about equally strong, and nothing that should be
# silent (order, tempo, level) happens to correlate with the label.
SEED = "subtext-demo-12"
STEP_S = 0.01

# Delivery styles, as (weight, mean of the three cues); each cue has unit variance around it.
# The cues, in standard units: pitch variation, final fall, longest pause.
STYLES: dict[bool, list[tuple[float, tuple[float, float, float]]]] = {
    True: [(0.45, (1.54, 0.22, 0.44)), (0.35, (0.33, 0.44, 1.54)), (0.20, (-0.55, 1.54, 0.22))],
    False: [(0.5, (-1.21, -0.33, -0.33)), (0.3, (0.55, -1.21, -0.99)), (0.2, (-0.66, -0.66, 0.55))],
}
CUE_FIELDS = ("f0_sd_st", "f0_final_slope_st_per_s", "pause_longest_s")


def read_lines(path: Path) -> tuple[dict[str, float], list[Clip]]:
    """Return each voice's pitch in Hz and the clips in the order written, without prosody."""
    source = tomllib.loads(path.read_text(encoding="utf-8"))
    clips = [_clip(scene, label) for scene in source["pair"] for label in (True, False)]
    clips += [_clip(scene, scene["sarcasm"]) for scene in source["line"]]
    return source["voices_hz"], clips


def _clip(scene: dict[str, Any], sarcasm: bool) -> Clip:
    turns = [turn.split(": ", 1) for turn in scene["context"]]
    return {
        "utterance": scene["utterance"],
        "speaker": scene["speaker"],
        "context": [text for _, text in turns],
        "context_speakers": [speaker for speaker, _ in turns],
        "show": scene["show"],
        "sarcasm": sarcasm,
    }


def _digest(clip: Clip) -> str:
    name = "\x1f".join((SEED, clip["show"], clip["speaker"], clip["utterance"]))
    return hashlib.sha256(f"{name}\x1f{clip['sarcasm']}".encode()).hexdigest()


def draw_cues(sarcasm: bool, n: int, rng: np.random.Generator) -> Array:
    """Draw the cues of `n` clips with this label. Shape [n, 3], standard units."""
    weights, means = zip(*STYLES[sarcasm], strict=True)
    style = rng.choice(len(weights), size=n, p=weights)
    return np.asarray(means)[style] + rng.standard_normal((n, 3))


def invent_tracks(n_words: int, voice_hz: float, cues: Array, rng: np.random.Generator) -> Tracks:
    """Invent the tracks of one clip of `n_words` words, one frame every 10 ms.

    `cues` (shape [3], standard units) set the pitch SD (median 2.6 st), the final slope (around
    -3 st/s) and the longest pause (around 0.3 s; under 0.15 s there is none). A pause takes
    time from the speech, so that the duration tells nothing about it.
    """
    duration_s = 0.45 + n_words * 0.30 * float(np.exp(0.13 * rng.standard_normal()))
    time_s = np.arange(STEP_S / 2, duration_s, STEP_S)
    pause = _pauses(time_s, duration_s, float(0.30 + 0.14 * cues[2]), rng)
    speech = (time_s > 0.06) & (time_s < duration_s - 0.10) & ~pause
    voiced = speech & _syllables(time_s, rng)
    pitch_st = _pitch(time_s, voiced, float(2.6 * np.exp(0.30 * cues[0])), -3 - 6 * cues[1], rng)
    level_db = 66 + rng.uniform(1.5, 4) * np.sin(2 * np.pi * (rng.uniform(0.4, 1.2) * time_s))
    level_db += rng.normal(0, 1.5, time_s.size) - np.where(voiced, 0, 7)
    hnr_db = rng.normal(11, 1.5) + rng.normal(0, 2.5, time_s.size)
    return Tracks(
        f0_hz=np.where(voiced, voice_hz * 2 ** (pitch_st / 12), np.nan),
        intensity_db=np.where(speech, level_db, 28 + rng.normal(0, 1, time_s.size)),
        hnr_db=np.where(voiced, hnr_db, np.nan),
        start_s=(STEP_S / 2,) * 3,
        duration_s=duration_s,
        pitch_floor_hz=voice_hz / 3,
        pitch_ceiling_hz=voice_hz * 3,
        step_s=STEP_S,
    )


def _pauses(
    time_s: Array, duration_s: float, longest_s: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Mark the frames of the longest pause and, in three clips of ten, of a shorter one."""
    longest_s = min(longest_s, 0.3 * duration_s)
    first, second = rng.permutation([rng.uniform(0.22, 0.32), rng.uniform(0.62, 0.74)]) * duration_s
    shorter_s = rng.uniform(0.5, 0.9) * longest_s if rng.random() < 0.3 else 0.0
    marked = np.zeros(time_s.size, dtype=np.bool_)
    for centre_s, length_s in ((first, longest_s), (second, shorter_s)):
        if length_s >= 0.15:
            marked |= np.abs(time_s - centre_s) <= length_s / 2
    return marked


def _syllables(time_s: Array, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Mark voiced stretches of 0.09 to 0.22 s with 0.03 to 0.1 s of consonants between them."""
    n = int(time_s[-1] / 0.12) + 2
    runs_s = np.stack([rng.uniform(0.09, 0.22, n), rng.uniform(0.03, 0.10, n)], axis=1).ravel()
    voiced: NDArray[np.bool_] = np.searchsorted(np.cumsum(runs_s), time_s) % 2 == 0
    return voiced


def _pitch(
    time_s: Array,
    voiced: NDArray[np.bool_],
    sd_st: float,
    final_st_per_s: float,
    rng: np.random.Generator,
) -> Array:
    """Pitch in semitones from the voice's middle: slow waves, then a straight last half second."""
    waves_hz, phase = rng.uniform(0.3, 1.4, (3, 1)), rng.uniform(0, 2 * np.pi, (3, 1))
    waves = np.sin(2 * np.pi * waves_hz * time_s + phase).sum(axis=0)
    pitch_st: Array = sd_st * (waves - waves[voiced].mean()) / waves[voiced].std()
    last_s = time_s[voiced][-1]
    final = time_s > last_s - 0.5
    pitch_st[final] = pitch_st[final][0] + final_st_per_s * (time_s[final] - time_s[final][0])
    pitch_st += rng.normal(0, 0.15, time_s.size)
    return pitch_st


def make_record(clip: Clip, voice_hz: float, rng: np.random.Generator) -> tuple[Array, Clip]:
    """Return the cues drawn for `clip` (shape [3]) and its prosody record."""
    cues = draw_cues(clip["sarcasm"], 1, rng)[0]
    return cues, record_from_tracks(
        invent_tracks(len(clip["utterance"].split()), voice_hz, cues, rng)
    )


def make_corpus(lines: Path) -> tuple[dict[str, Clip], dict[str, Any]]:
    """Return the contents of sarcasm_data.json and prosody.json, in the order of the ids.

    An id is part of a hash, so its order says nothing about label, pair or show.
    """
    voices_hz, written = read_lines(lines)
    scenarios: dict[str, Clip] = {}
    records: dict[str, Any] = {}
    for digest, clip in sorted({_digest(clip): clip for clip in written}.items()):
        clip_id = f"d_{digest[:6]}"
        rng = np.random.default_rng(int(digest, 16))
        scenarios[clip_id] = clip
        records[clip_id] = make_record(clip, voices_hz[clip["speaker"]], rng)[1]
    return scenarios, {"schema": SCHEMA, "extractor": EXTRACTOR, "note": NOTE, "clips": records}


def measure_ceiling(lines: Path, n: int, seed: int = 0) -> dict[str, float]:
    """How well labels can be told on corpora far larger than the committed one.

    `n` clips of each label are drawn. Returned are accuracies: `ideal`, the Bayes rule, which
    knows every mixture; `cues`, logistic regression on the cues themselves; `records`, five-fold
    logistic regression on the three cue fields of the records; and `duration`, the same on
    duration alone, which should be chance.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    voices_hz, written = read_lines(lines)
    rng = np.random.default_rng(seed)
    labels = np.arange(2 * n) % 2 == 0
    scenes = rng.choice(len(written), 2 * n)
    drawn = [
        make_record({**written[scene], "sarcasm": label}, voices_hz[written[scene]["speaker"]], rng)
        for scene, label in zip(scenes, labels.tolist(), strict=True)
    ]
    cues = np.stack([cue for cue, _ in drawn])
    model = make_pipeline(StandardScaler(), LogisticRegression())

    def score(inputs: Array) -> float:
        return float(cross_val_score(model, inputs, labels, cv=5).mean())

    def column(*names: str) -> Array:
        return np.array([[record[name] or 0.0 for name in names] for _, record in drawn])

    ideal = _density(cues, True) > _density(cues, False)
    return {
        "ideal": float((ideal == labels).mean()),
        "cues": score(cues),
        "records": score(column(*CUE_FIELDS)),
        "duration": score(column("duration_s")),
    }


def _density(cues: Array, sarcasm: bool) -> Array:
    """Density of each row of `cues` under the label's mixture, up to a constant factor."""
    density = np.zeros(len(cues))
    for weight, mean in STYLES[sarcasm]:
        density += weight * np.exp(-((cues - mean) ** 2).sum(axis=1) / 2)
    return density


def main() -> None:
    parser = argparse.ArgumentParser(description="Make data/demo from its hand-written lines.")
    parser.add_argument("-o", "--out", type=Path, default=DEMO, help="folder to write to")
    parser.add_argument("--ceiling", type=int, metavar="N", help="only measure, on N clips a label")
    options = parser.parse_args()
    if options.ceiling:
        for name, accuracy in measure_ceiling(DEMO / "lines.toml", options.ceiling).items():
            print(f"{name}: {accuracy:.3f}")
        return
    scenarios, prosody = make_corpus(DEMO / "lines.toml")
    for name, content in (("sarcasm_data.json", scenarios), ("prosody.json", prosody)):
        print(strict_json.write(options.out / name, content))


if __name__ == "__main__":
    main()
