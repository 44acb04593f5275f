"""The sentence that opens report, card and summary: it claims what the comparisons say, no more."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.judged_run import evaluation_of

from subtext.evaluation.statistics import BETTER, NOT_DISTINGUISHABLE, WORSE
from subtext.evaluation.verdict import verdict

EVALUATION = evaluation_of(champion=True)
ROWS = EVALUATION["comparisons"]
BASELINES = [row["name"] for row in ROWS if row["kind"] == "baseline"]
DOUBT = {"name": "x", "message": "Something is odd."}


def changed(verdicts: list[str], **parts: Any) -> dict[str, Any]:
    """The example where the comparisons say `verdicts`."""
    rows = [{**row, "verdict": said} for row, said in zip(ROWS, verdicts, strict=True)]
    return {**EVALUATION, "alarms": [], "warnings": [], "comparisons": rows, **parts}


def of_all(said: str, **parts: Any) -> str:
    return verdict(changed([said] * len(ROWS), **parts))


def n_baselines(sentence: str, said: str) -> int:
    """How many baselines the sentence counts under the words `said`."""
    words = {BETTER: "better than", WORSE: "worse than"}.get(said, f"{said} from")
    n = 0
    for found in re.findall(f"{words} (all|the baseline|[0-9]+ of)", sentence):
        n += len(BASELINES) if found == "all" else 1 if "the" in found else int(found.split()[0])
    return n


@settings(max_examples=200, deadline=None)
@given(
    verdicts=st.lists(
        st.sampled_from([BETTER, WORSE, NOT_DISTINGUISHABLE]),
        min_size=len(ROWS), max_size=len(ROWS),
    ),
    n_alarms=st.integers(0, 3), n_warnings=st.integers(0, 3),
)  # fmt: skip
def test_it_claims_what_the_comparisons_say(
    verdicts: list[str], n_alarms: int, n_warnings: int
) -> None:
    evaluation = changed(verdicts, alarms=[DOUBT] * n_alarms, warnings=[DOUBT] * n_warnings)
    sentence = verdict(evaluation)
    assert ("better" in sentence) == (BETTER in verdicts)
    assert ("worse" in sentence) == (WORSE in verdicts)
    assert (NOT_DISTINGUISHABLE in sentence) == (NOT_DISTINGUISHABLE in verdicts)
    for said in (BETTER, WORSE, NOT_DISTINGUISHABLE):
        assert n_baselines(sentence, said) == verdicts[2:].count(said)
    counted = {
        noun: sum(map(int, re.findall(f"([0-9]+) {noun}", sentence)))
        for noun in ("alarm", "warning")
    }
    assert counted == {"alarm": n_alarms, "warning": n_warnings}
    assert sentence.endswith(".") and "\n" not in sentence


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (BETTER, "better than the base, better than the champion, better than all 8 baselines."),
        (WORSE, "worse than the base, worse than the champion, worse than all 8 baselines."),
        (
            NOT_DISTINGUISHABLE,
            "not distinguishable from the base, not distinguishable from the champion, "
            "not distinguishable from all 8 baselines.",
        ),
    ],
)
def test_one_verdict_on_all(said: str, words: str) -> None:
    assert of_all(said, passes=forms(base=1.0)).endswith(f": {words}")


def test_a_single_baseline_is_named() -> None:
    verdicts = [BETTER] * len(ROWS)
    verdicts[2 + BASELINES.index("speaker")] = WORSE
    sentence = verdict(changed(verdicts))
    assert "better than 7 of 8 baselines, worse than the baseline speaker" in sentence


def test_an_only_baseline_is_named_too() -> None:
    evaluation = changed([BETTER] * len(ROWS))
    rows = [row for row in evaluation["comparisons"] if row["name"] in ("base", "speaker")]
    sentence = verdict({**evaluation, "comparisons": rows})
    assert sentence.endswith(", better than the baseline speaker.")


def test_accuracy_comes_with_its_interval_and_number_of_clips() -> None:
    figures = {
        **EVALUATION["passes"]["trained"],
        "accuracy": 0.6254, "accuracy_interval": [0.5251, 0.7149], "n_eval_clips": 71,
    }  # fmt: skip
    sentence = of_all(BETTER, passes={**EVALUATION["passes"], "trained": figures})
    assert sentence.startswith(
        "62.5 % of 71 held-out clips right (95 % interval 52.5 to 71.5 %): better than the base"
    )


def forms(base: float = 1.0, champion: float = 1.0) -> dict[str, Any]:
    """The example's passes, where these shares of the answers are in the form asked for."""
    rates = {"base": base, "champion": champion}
    return EVALUATION["passes"] | {
        name: {**EVALUATION["passes"][name], "strict_rate": rate} for name, rate in rates.items()
    }


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        pytest.param({"base": 0.04}, "the base (well-formed in 4 %), better", id="a-base-hardly"),
        pytest.param({"base": 0.0}, "the base (well-formed in 0 %), better", id="never"),
        pytest.param({"base": 0.5}, "the base, better", id="half-is-not-rare"),
        pytest.param({"champion": 0.1}, "the champion (well-formed in 10 %),", id="champion"),
    ],
)
def test_to_beat_who_keeps_no_form_is_said_to_be_that(rates: dict[str, Any], words: str) -> None:
    assert words in of_all(BETTER, passes=forms(**rates))


@pytest.mark.parametrize(
    ("n_alarms", "n_warnings", "words"),
    [
        (0, 0, "baselines."),
        (1, 0, "; 1 alarm stands against it."),
        (0, 2, "; 2 warnings stand against it."),
        (1, 1, "; 1 alarm and 1 warning stand against it."),
        (3, 1, "; 3 alarms and 1 warning stand against it."),
    ],
)
def test_doubts_are_counted(n_alarms: int, n_warnings: int, words: str) -> None:
    sentence = of_all(BETTER, alarms=[DOUBT] * n_alarms, warnings=[DOUBT] * n_warnings)
    assert sentence.endswith(words)
    assert ("against" in sentence) == bool(n_alarms or n_warnings)
