"""The teacher of the warm start: well-formed answers that quote what the prompt prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.corpus import write_corpus

from subtext.answer import LABELS, parse_final, reasoning_text
from subtext.config import PromptConfig, RunConfig
from subtext.data.dataset import dataset_rows
from subtext.data.scenarios import load_scenarios
from subtext.policy.warm_start import teacher_answer, teacher_examples
from subtext.profiles import resolve
from subtext.prompts import build_full_observation

PROMPT = PromptConfig()


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return load_scenarios(write_corpus(tmp_path_factory.mktemp("corpus")))


@pytest.fixture(scope="module")
def cues(scenarios: dict[str, dict[str, Any]]) -> dict[str, set[str]]:
    """The lines of each clip's prompt that name a cue."""
    printed = {i: build_full_observation(i, scenarios, PROMPT).splitlines() for i in scenarios}
    return {
        clip_id: {line for line in lines if re.match(r"[a-z ]+: ", line)}
        for clip_id, lines in printed.items()
    }


answers = given(
    index=st.integers(0, 39), label=st.sampled_from(sorted(LABELS)), seed=st.integers(0, 2**32)
)


class TestTeacherAnswer:
    @answers
    def test_is_well_formed_with_its_label(
        self, scenarios: dict[str, dict[str, Any]], index: int, label: str, seed: int
    ) -> None:
        clip_id = list(scenarios)[index]
        answer = teacher_answer(clip_id, scenarios[clip_id]["prosody"], label, seed)
        found, confidence, well_formed = parse_final(answer)
        assert (found, well_formed) == (label, True)
        assert 0.5 < confidence < 1

    @answers
    def test_reasoning_has_20_to_40_words(
        self, scenarios: dict[str, dict[str, Any]], index: int, label: str, seed: int
    ) -> None:
        clip_id = list(scenarios)[index]
        answer = teacher_answer(clip_id, scenarios[clip_id]["prosody"], label, seed)
        reasoning = reasoning_text(answer)
        assert reasoning is not None
        assert 20 <= len(reasoning.split()) <= 40

    @answers
    def test_quotes_only_what_the_prompt_prints(
        self,
        scenarios: dict[str, dict[str, Any]],
        cues: dict[str, set[str]],
        index: int,
        label: str,
        seed: int,
    ) -> None:
        clip_id = list(scenarios)[index]
        answer = teacher_answer(clip_id, scenarios[clip_id]["prosody"], label, seed)
        reasoning = reasoning_text(answer) or ""
        own = cues[clip_id]
        foreign = set().union(*cues.values()) - own
        assert any(line in reasoning for line in own)
        for line in foreign:
            assert line not in reasoning or any(line in mine for mine in own)

    def test_same_seed_same_answer_and_seeds_differ(self) -> None:
        answers = [teacher_answer("1_1", None, "sincere", seed) for seed in [*range(20), 0]]
        assert answers[0] == answers[-1]
        assert len(set(answers)) > 10


def config(**warm_start: Any) -> RunConfig:
    return resolve("demo", {"warm_start": warm_start})


def rows_of(scenarios: dict[str, dict[str, Any]], ids: set[str]) -> list[dict[str, Any]]:
    return dataset_rows(scenarios, 50, allowed_clip_ids=ids, prompt=PROMPT)


class TestTeacherExamples:
    @pytest.mark.parametrize(
        ("noise", "low", "high"),
        [
            pytest.param(0.0, 0.0, 0.0, id="none"),
            # 400 draws: four standard deviations of a binomial share are 0.07 and 0.1.
            pytest.param(0.15, 0.08, 0.22, id="default"),
            pytest.param(0.5, 0.4, 0.6, id="half"),
            pytest.param(1.0, 1.0, 1.0, id="all"),
        ],
    )
    def test_share_of_other_labels_is_the_noise(
        self, scenarios: dict[str, dict[str, Any]], noise: float, low: float, high: float
    ) -> None:
        rows = rows_of(scenarios, set(scenarios))
        examples = teacher_examples(rows, scenarios, config(label_noise=noise, n_examples=400))
        other = [
            parse_final(example["completion"][0]["content"])[0] != rows[index % 50]["gold"]
            for index, example in enumerate(examples)
        ]
        assert low <= sum(other) / 400 <= high

    def test_same_seed_same_examples(self, scenarios: dict[str, dict[str, Any]]) -> None:
        rows = rows_of(scenarios, set(scenarios))
        first = teacher_examples(rows, scenarios, config(seed=3, n_examples=60))
        assert first == teacher_examples(rows, scenarios, config(seed=3, n_examples=60))
        assert first != teacher_examples(rows, scenarios, config(seed=4, n_examples=60))
        assert len(first) == 60
        assert len({example["completion"][0]["content"] for example in first}) > 55

    def test_only_prompts_of_training_clips(
        self, scenarios: dict[str, dict[str, Any]], tmp_path: Path
    ) -> None:
        train = set(list(scenarios)[:20])
        examples = teacher_examples(rows_of(scenarios, train), scenarios, config(n_examples=120))
        seen = {example["prompt"][1]["content"] for example in examples}
        assert seen == {build_full_observation(clip_id, scenarios, PROMPT) for clip_id in train}
