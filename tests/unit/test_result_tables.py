"""The rows that people read: the evaluation's own numbers, and nothing cut off on a terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from rich.console import Console
from support.judged_run import LEAK_REPORT, evaluation_of, judged_run

from subtext import strict_json
from subtext.config import Ablation
from subtext.errors import DataError
from subtext.evaluation.ablations import LABELS
from subtext.figures import difference_text, interval_text, percent
from subtext.fold_tables import folds_markdown, render_folds
from subtext.result_tables import (
    ABLATION_COLUMNS,
    AGAINST_COLUMNS,
    LEAK_COLUMNS,
    PASS_COLUMNS,
    ablation_rows,
    against_rows,
    doubts,
    gate_sentence,
    leak_rows,
    leak_sentence,
    pass_rows,
    read_evaluation,
    rich_table,
)
from subtext.run_dir import RunDir

WIDEST = {"difference": -1.0, "interval": [-1.0, 1.0], "verdict": "not distinguishable"}


def rendered(table: Any) -> str:
    console = Console(width=80)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def shown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table on the narrowest terminal that people use."""
    return rendered(rich_table("A table", columns, rows))


def test_one_row_a_policy_with_its_own_numbers() -> None:
    evaluation = evaluation_of(champion=True)
    evaluation["passes"]["trained"]["strict_rate"] = 0.901  # as for answers that went on too long
    rows = {row[0]: dict(zip(PASS_COLUMNS, row, strict=True)) for row in pass_rows(evaluation)}
    assert list(rows) == ["base", "warm-started", "trained", "champion"]
    for label, name in (("warm-started", "warm"), ("trained", "trained")):
        figures, row = evaluation["passes"][name], rows[label]
        assert float(row["accuracy"]) == pytest.approx(figures["accuracy"], abs=5e-4)
        assert float(row["F1"]) == pytest.approx(figures["f1_weighted"], abs=5e-4)
        assert float(row["well-formed"]) == pytest.approx(figures["strict_rate"], abs=5e-4)
        assert float(row["reward"]) == pytest.approx(figures["mean_reward"], abs=5e-4)
        assert int(row["clips"]) == figures["n_eval_clips"]
        bounds = [float(bound) for bound in row["95 %"].split("-")]
        assert bounds == pytest.approx(figures["accuracy_interval"], abs=5e-3)


def test_a_pass_that_is_not_there_has_no_row_and_altered_prompts_are_no_policy() -> None:
    evaluation = evaluation_of()
    del evaluation["passes"]["warm"]
    assert "no_prosody" in evaluation["passes"]
    assert [row[0] for row in pass_rows(evaluation)] == ["base", "trained"]


def test_comparisons_keep_their_order_and_verdict() -> None:
    evaluation = evaluation_of(champion=True)
    rows = [dict(zip(AGAINST_COLUMNS, row, strict=True)) for row in against_rows(evaluation)]
    assert [row["trained against"] for row in rows][:3] == ["base", "champion", "train majority"]
    for row, compared in zip(rows, evaluation["comparisons"], strict=True):
        assert row["verdict"] == compared["verdict"]
        assert float(row["accuracy"]) == pytest.approx(compared["accuracy_against"], abs=5e-4)
        assert row["difference (95 %)"].startswith(f"{compared['difference']:+.3f} (")
    base = evaluation["passes"]["base"]["accuracy"]
    assert rows[0]["accuracy"] == f"{base:.3f}", "the figure of the table above"


def test_altered_prompts_with_what_they_cost() -> None:
    evaluation = evaluation_of()
    rows = {row[0]: row for row in ablation_rows(evaluation)}
    assert list(rows) == [LABELS[name] for name in evaluation["ablations"]]
    for name, found in evaluation["ablations"].items():
        _, accuracy, cost, flips, form = rows[LABELS[name]]
        assert accuracy == f"{evaluation['passes'][name]['accuracy']:.3f}"
        assert cost == difference_text(found)
        assert int(flips.rstrip("%")) == pytest.approx(100 * found["flip_rate"], abs=0.51)
        assert form == f"{evaluation['passes'][name]['strict_rate']:.3f}"


def test_doubts_are_alarms_first() -> None:
    alarms = [{"name": "no_learning_signal", "message": "Nothing was learned."}]
    warnings = [{"name": "leak", "message": "It leaks."}, {"name": "x", "message": "Odd."}]
    evaluation = {**evaluation_of(), "alarms": alarms, "warnings": warnings}
    assert doubts(evaluation) == ["Nothing was learned.", "It leaks.", "Odd."]


def test_an_alarm_that_passed_is_told_last_with_its_step() -> None:
    passed = [{"name": "clipped_completions", "message": "Half were cut.", "step": 12}]
    evaluation = {**evaluation_of(), "alarms": [], "warnings": [], "passed_alarms": passed}
    assert doubts(evaluation) == ["While training, first at step 12: Half were cut."]
    del evaluation["passed_alarms"]  # as in a run made before there were any
    assert doubts(evaluation) == []


@pytest.mark.parametrize(
    ("failed", "sentence"),
    [
        ([], "promoted to champion"),
        (["beats_base"], "not promoted; rules failed: beats base"),
        (["beats_base", "no_alarm"], "not promoted; rules failed: beats base, no alarm"),
    ],
)
def test_the_gate_in_one_sentence(failed: list[str], sentence: str) -> None:
    reasons = [
        {"rule": rule, "passed": rule not in failed, "text": "So it is."}
        for rule in ("beats_base", "well_formed", "no_alarm")
    ]
    gate = {"decision": "stay" if failed else "promote", "reasons": reasons}
    assert gate_sentence(gate) == sentence


def test_leaks_as_rows_and_a_sentence(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert leak_rows(run) == []
    strict_json.write(run.leak_report, LEAK_REPORT)
    assert leak_rows(run) == [
        ("duration", "0.500", "0.42-0.58", "-"),
        ("speaker", "0.692", "0.61-0.76", "0.770"),
    ]
    assert leak_sentence(run) == (
        "Split official: 12 scene pairs across it; training knows the speaker of 99 % and the show "
        "of 100 % of 138 held-out clips."
    )


@pytest.mark.parametrize(
    ("difference", "interval", "text"),
    [
        (0.0564, [-0.051, 0.124], "+0.056 (-0.05 to +0.12)"),
        (-0.0564, [-0.124, -0.0449], "-0.056 (-0.12 to -0.04)"),
        (0.0, [-0.026, 0.026], "+0.000 (-0.03 to +0.03)"),
        (1.0, [1.0, 1.0], "+1.000 (+1.00 to +1.00)"),
    ],
)
def test_a_difference_shows_its_sign(difference: float, interval: list[float], text: str) -> None:
    assert difference_text({"difference": difference, "interval": interval}) == text


def test_an_interval_is_two_bounds() -> None:
    assert interval_text([0.0, 0.0512]) == "0.00-0.05"


def test_an_evaluation_is_read_as_written_or_asked_for(tmp_path: Path) -> None:
    run = judged_run(tmp_path / "demo-1")
    assert read_evaluation(run) == strict_json.read(run.metrics)
    run.metrics.unlink()
    with pytest.raises(DataError, match="has judged nothing yet") as caught:
        read_evaluation(run)
    (problem,) = caught.value.problems
    assert problem.field == "metrics.json"
    assert "log" in problem.remedy


@pytest.mark.parametrize("champion", [False, True], ids=["first run", "beside a champion"])
def test_on_80_columns_nothing_is_cut_off(champion: bool) -> None:
    evaluation = evaluation_of(champion=champion)
    for columns, rows in (
        (PASS_COLUMNS, pass_rows(evaluation)),
        (AGAINST_COLUMNS, against_rows(evaluation)),
        (ABLATION_COLUMNS, ablation_rows(evaluation)),
    ):
        assert_whole(columns, rows)


def test_on_80_columns_the_widest_figures_are_whole() -> None:
    """All altered prompts, losses of everything, and a thousand clips."""
    evaluation = evaluation_of(champion=True)
    for figures in evaluation["passes"].values():
        figures["n_eval_clips"] = 1000
    evaluation["comparisons"] = [{**row, **WIDEST} for row in evaluation["comparisons"]]
    row = {**next(iter(evaluation["ablations"].values())), **WIDEST, "flip_rate": 1.0}
    evaluation["ablations"] = {name: {**row, "label": LABELS[name]} for name in get_args(Ablation)}
    figures = evaluation["passes"]["trained"]
    evaluation["passes"] |= dict.fromkeys(get_args(Ablation), figures)
    assert_whole(PASS_COLUMNS, pass_rows(evaluation))
    assert_whole(AGAINST_COLUMNS, against_rows(evaluation))
    assert_whole(ABLATION_COLUMNS, ablation_rows(evaluation))
    assert_whole(LEAK_COLUMNS, [("line + context length", "0.500", "0.42-0.58", "0.770")])


def assert_whole(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Every word and number of the table is on the screen, and no line is too long."""
    text = shown(columns, rows)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    words = [word for line in (columns, *rows) for cell in line for word in cell.split()]
    assert [word for word in words if word not in text] == []


def test_what_somebody_called_a_file_is_no_markup() -> None:
    text = shown(("run", "figure"), [("[red]demo[/x]", "[bold]1")])
    assert "[red]demo[/x]" in text
    assert "[bold]1" in text


def folds(paper: bool = True) -> dict[str, Any]:
    """What `pool_folds` returns for runs with names of the usual length."""
    evaluation = evaluation_of()
    row = {"system": "SVM text + audio + video", "precision": 71.9, "recall": 71.4, "f1": 71.5}
    figures = evaluation["passes"]
    return {
        "protocol": "official folds (speaker-dependent)", "n_clips": 690,
        "pooled": {"trained": figures["trained"]},
        "mean": {**figures, **evaluation["baselines"]},
        "folds": [
            {"fold": fold, "n": 138, "policies": figures,
             "run_id": f"cpu-20261201-074117-eade46bf-fold-{fold}"}
            for fold in range(5)
        ],
        "comparisons": evaluation["comparisons"],
        "paper": {"source": "Castro et al. 2019", "rows": [row]} if paper else None,
        "paper_left_out": None if paper else "The paper's figures are of MUStARD.",
    }  # fmt: skip


@pytest.mark.parametrize("paper", [True, False], ids=["MUStARD", "another corpus"])
def test_folds_on_80_columns_nothing_is_cut_off(paper: bool) -> None:
    text = rendered(render_folds(folds(paper)))
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("paper", [True, False], ids=["MUStARD", "another corpus"])
def test_folds_say_the_same_on_a_terminal_and_in_markdown(paper: bool) -> None:
    content = folds(paper)
    terminal, markdown = rendered(render_folds(content)), folds_markdown(content)
    for text in (" ".join(terminal.split()), markdown):
        assert ("SVM text + audio + video" in text) is paper
        assert ("The paper's figures are of MUStARD." in text) is not paper
        assert ("check before quoting" in text) is paper
        assert "somewhat too narrow" in text
    mean = content["mean"]["trained"]
    assert re.search(rf"\| trained \|.* {100 * mean['f1_weighted']:.1f} \|", markdown)
    assert "| speaker | - | - |" in markdown, "a baseline has no weighted precision"


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [(0.234, 0, "23 %"), (1.0, 0, "100 %"), (0.546, 1, "54.6 %"), (0.0, 1, "0.0 %")],
)
def test_one_style_of_percent(share: float, digits: int, text: str) -> None:
    assert percent(share, digits) == text
