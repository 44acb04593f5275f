"""The report's page: one file, the figures it was given, and text that stays text."""

from __future__ import annotations

import json
import re
from collections import Counter
from copy import deepcopy
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.evaluation import Example, answers, example

from subtext import strict_json
from subtext.config import PromptConfig
from subtext.evaluation.behaviour import behaviour_warnings
from subtext.evaluation.report import wording
from subtext.evaluation.report.clips import POLICIES, clip_rows
from subtext.evaluation.report.page import render_report, write_report
from subtext.evaluation.report.plots import draw_plots
from subtext.prompts import build_full_observation

HOSTILE = '</script><img src=x onerror=alert(1)><!-- \u2028 & "quoted" {{ 7 * 7 }} \' </style>'
NO_FIGURE = re.compile(r"\b(NaN|None|undefined|inf|Infinity|True|False)\b")
MASKED, NAMED = PromptConfig(), PromptConfig(speaker="named")


class Page(HTMLParser):
    """What a browser's parser finds: elements, ids, links and the text that people see."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []
        self.data = ""
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        given = dict(attrs)
        if identifier := given.get("id"):
            self.ids.append(identifier)
        if tag == "a":
            self.links.append(given["href"] or "")
        if tag in ("script", "style"):
            self._inside = f"{tag} {given.get('type', '')}"

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script application/json":
            self.data += data
        elif not self._inside and data.strip():
            self.texts.append(data.strip())

    @property
    def text(self) -> str:
        return " ".join(self.texts)


@cache
def plots_of(n_clips: int = 71) -> dict[str, str]:
    made = example(n_clips, champion=True)
    return draw_plots(made.evaluation, made.log_history)


def rendered(evaluation: dict[str, Any] | None = None, made: Example | None = None) -> str:
    made = made or example(champion=True)
    clips = clip_rows(made.records, made.scenarios, MASKED, made.strata)
    return render_report(evaluation or made.evaluation, clips, plots_of())


def changed(**parts: Any) -> dict[str, Any]:
    return {**deepcopy(example(champion=True).evaluation), **parts}


def test_the_page_is_whole_and_loads_nothing() -> None:
    html = rendered()
    page = Page(html)
    assert page.tags["script"] == 2 and page.tags["link"] == 1 and page.tags["img"] == 0
    assert "default-src 'none'" in html
    assert not re.search(r"(https?:)?//[a-z]", html.replace("http://www.w3.org/2000/svg", ""))
    assert len(page.ids) == len(set(page.ids))
    assert page.texts.index(example(champion=True).evaluation["verdict"]) < page.texts.index(
        "Judged"
    )


def test_the_figures_are_those_of_the_evaluation() -> None:
    evaluation = example(champion=True).evaluation
    text = Page(rendered()).text
    policies = [evaluation["passes"][name] for name in POLICIES]
    for figures in [*policies, *evaluation["baselines"].values()]:
        low, high = figures["accuracy_interval"]
        shown = f"{100 * figures['accuracy']:.1f} {100 * low:.1f} to {100 * high:.1f}"
        assert shown in text
    for row in evaluation["comparisons"]:
        low, high = row["interval"]
        shown = (
            f"{wording.points(row['difference'])} {wording.points(low)} to {wording.points(high)}"
        )
        assert f"{shown} {row['n_only_ours']} : {row['n_only_theirs']}" in text
    for row in evaluation["ablations"].values():
        assert row["label"] in text
    for name in ("speakers", "shows"):
        assert all(row["name"] in text for row in evaluation["generalisation"][name])


def test_every_figure_of_a_pass_is_in_the_table_or_on_a_plot() -> None:
    elsewhere = {
        # counts behind a rate that is shown, and what the plots and the first table show
        "n_correct", "n_well_formed", "n_strict", "n_ended", "majority_accuracy", "reward_parts",
        "pivot_in_eval", "pivot_correct", "confusion", "reliability", "risk_coverage",
    }  # fmt: skip
    shown = {key for _, *keys in wording.FIGURES for key in keys}
    assert set(example().evaluation["passes"]["trained"]) - shown - elsewhere == set()


def test_the_words_of_a_verdict_are_those_of_the_comparison() -> None:
    evaluation = example(champion=True).evaluation
    html = rendered()
    expected = Counter(
        row["verdict"]
        for row in [*evaluation["comparisons"], *evaluation["ablations"].values()]
    )  # fmt: skip
    found = Counter(re.findall(r'<td class="verdict [a-z-]+">([^<]*)</td>', html))
    assert found == expected and expected["not distinguishable"]


@pytest.mark.parametrize("n_doubts", [1, 2])
def test_warnings_stand_right_under_the_verdict_and_in_the_title(n_doubts: int) -> None:
    found = [{"name": "constant_answers", "message": f"Message {k}."} for k in range(n_doubts)]
    page = Page(rendered(changed(alarms=found[:1], warnings=found[1:])))
    title = page.texts[0]
    assert title.startswith(f"({n_doubts} warning")
    verdict = page.texts.index(example(champion=True).evaluation["verdict"])
    assert page.texts[verdict + 1].startswith("Before you believe a figure: 1 alarm")
    for item in found:
        assert verdict < page.texts.index(item["message"]) < page.texts.index("Judged")
    assert page.texts.count("Constant answers") == n_doubts


def test_without_warnings_there_is_no_such_box() -> None:
    page = Page(rendered())
    assert "doubts" not in page.ids
    assert page.texts[0].startswith("Subtext evaluation of ")


def test_a_planted_constant_policy_is_exposed() -> None:
    made = example(champion=True)
    judged = [record["clip_id"] for record in made.records["trained"]]
    everything = {clip_id: {**made.scenarios[clip_id], "sarcasm": True} for clip_id in judged}
    constant = answers(everything, judged, accuracy=1.0)
    warnings = behaviour_warnings(constant, made.scenarios, MASKED)
    assert warnings
    text = Page(rendered(changed(warnings=warnings))).text
    assert all(warning["message"] in text for warning in warnings)


def planted(text: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The example with `text` wherever a clip, a model or a user can put words."""
    made = example(champion=True)
    evaluation = changed(run_id=text, verdict=text, warnings=[{"name": text, "message": text}])
    evaluation["split"]["corpus"] = text
    for rows in ("speakers", "shows"):
        evaluation["generalisation"][rows][0]["name"] = text
    evaluation["baselines"][text] = evaluation["baselines"]["speaker"]
    clips = deepcopy(clip_rows(made.records, made.scenarios, MASKED, made.strata)[:1])
    clips[0] |= {"line": text, "speaker": text, "prompt": text, "clip_id": text}
    clips[0]["context"] = [[text, text]]
    clips[0]["answers"]["trained"]["text"] = text
    return evaluation, clips


@settings(max_examples=20, deadline=None)
@given(
    st.one_of(
        st.just(HOSTILE), st.text(min_size=1), st.text("<>/&!-scriptSCRIPT\u2028\"'{}%", min_size=1)
    )
)
def test_text_of_clips_models_and_users_stays_text(text: str) -> None:
    evaluation, clips = planted(text)
    page = Page(render_report(evaluation, clips, {}))
    assert page.tags == plain_tags()
    assert json.loads(page.data) == clips


@cache
def plain_tags() -> Counter[str]:
    return Page(render_report(*planted("plain"), {})).tags


def test_json_on_the_page_holds_nothing_that_ends_it() -> None:
    evaluation, clips = planted(HOSTILE)
    html = render_report(evaluation, clips, {})
    data = html[html.index('id="clip-data">') + 15 :]
    data = data[: data.index("</script>")]
    assert json.loads(data) == clips
    assert not set(data) & set("<>&\u2028\u2029")


def test_the_same_evaluation_gives_the_same_bytes() -> None:
    made = example(champion=True)
    stored = strict_json.loads(strict_json.dumps(made.evaluation))
    assert rendered(stored) == rendered(made.evaluation)


def nulled(value: Any) -> Any:
    """Every figure that may be undefined is: None instead of a float or an interval."""
    optional = {"auroc", "auroc_interval", "auroc_confidence", "f1_macro_interval", "interval",
                "brier_interval", "mean_reward_interval", "accuracy_at_50", "p_holm"}  # fmt: skip
    if isinstance(value, dict):
        return {key: None if key in optional else nulled(item) for key, item in value.items()}
    return [nulled(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "evaluation",
    [
        nulled(example(champion=True).evaluation),
        changed(smallest_gain=None, champion=None, training_form=None, training={}),
        changed(smallest_gain=float("nan")),
        example(1).evaluation,
    ],
    ids=["undefined figures", "absent parts", "NaN", "one clip"],
)
def test_what_is_undefined_reads_as_a_dash(evaluation: dict[str, Any]) -> None:
    text = Page(rendered(evaluation)).text
    assert not NO_FIGURE.search(text), NO_FIGURE.search(text)
    assert wording.NONE in text


def test_nan_among_the_clips_is_refused() -> None:
    made = example(champion=True)
    clips = deepcopy(clip_rows(made.records, made.scenarios, MASKED, made.strata))
    clips[0]["answers"]["trained"]["confidence"] = float("nan")
    with pytest.raises(ValueError, match="not JSON compliant"):
        render_report(made.evaluation, clips, {})


BARE = {"train_sample": None, "speakers": [], "shows": [], "within_speaker": None, "curve": []}


@pytest.mark.parametrize(
    ("parts", "plots", "absent"),
    [
        ({}, {}, set()),
        ({"comparisons": []}, {}, {"comparisons"}),
        ({"ablations": {}}, {}, {"ablations"}),
        ({"training_form": None}, {}, {"training"}),
        ({"generalisation": BARE, "baselines": {}}, {}, set()),
    ],
)
def test_a_part_that_is_absent_leaves_no_section_and_no_link(
    parts: dict[str, Any], plots: dict[str, str], absent: set[str]
) -> None:
    page = Page(render_report(changed(**parts), [], plots))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert absent.isdisjoint(page.ids)
    assert not NO_FIGURE.search(page.text)


def test_an_adapter_judged_without_its_base_has_a_page() -> None:
    passes = {"trained": example().evaluation["passes"]["trained"]}
    page = Page(render_report(changed(passes=passes, champion=None, comparisons=[]), [], {}))
    assert "From base to trained" not in page.text


def test_two_hundred_clips_stay_well_under_three_megabytes() -> None:
    assert len(rendered(made=example(200)).encode()) < 2_000_000


def test_a_row_shows_what_the_prompt_shows() -> None:
    made = example(champion=True)
    for prompt in (MASKED, NAMED):
        for row in clip_rows(made.records, made.scenarios, prompt, made.strata):
            clip_id = row["clip_id"]
            assert row["prompt"] == build_full_observation(clip_id, made.scenarios, prompt)
            assert f"{row['speaker']}: {row['line']}" in row["prompt"]
            assert all(f"{who}: {line}" in row["prompt"] for who, line in row["context"])
            named = row["speaker"] == made.scenarios[clip_id]["speaker"]
            assert named == (prompt is NAMED)


def test_a_row_holds_every_pass_that_judged_the_clip() -> None:
    made = example(champion=True)
    shared = made.records["champion"][1:]
    rows = clip_rows({**made.records, "champion": shared}, made.scenarios, MASKED, made.strata)
    assert [row["clip_id"] for row in rows] == [r["clip_id"] for r in made.records["trained"]]
    assert set(rows[0]["answers"]) == {"base", "warm", "trained"}
    assert set(rows[1]["answers"]) == {"base", "warm", "trained", "champion"}
    assert set(rows[0]["others"]) == {"no_prosody", "shuffled_within_speaker", "mirrored_contour"}
    for row, record in zip(rows, made.records["trained"], strict=True):
        answer = row["answers"]["trained"]
        assert answer.pop("text") == record["completion_text"]
        assert answer.items() <= record.items()
        assert row["stratum"] == made.strata.get(row["clip_id"])


def test_a_clip_without_prosody_has_no_contour() -> None:
    made = example()
    clip_id = made.records["trained"][0]["clip_id"]
    scenarios = {**made.scenarios, clip_id: {**made.scenarios[clip_id], "prosody": None}}
    rows = clip_rows(made.records, scenarios, MASKED, {})
    assert rows[0]["contour_st"] is None and rows[0]["stratum"] is None
    assert rows[1]["contour_st"] == scenarios[rows[1]["clip_id"]]["prosody"]["contour_st"]


def test_the_file_holds_the_page(tmp_path: Path) -> None:
    path = tmp_path / "run" / "report.html"
    assert write_report(path, rendered()) == path
    assert path.read_bytes() == rendered().encode()
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (wording.percent(0.66197), "66.2"),
        (wording.share(1.0), "100.0\u202f%"),
        (wording.number(0.24661), "0.247"),
        (wording.number(-0.0213), "−0.021"),
        (wording.number(31), "31"),
        (wording.points(0.056), "+5.6"),
        (wording.points(-0.1), "−10.0"),
        (wording.points(0.0), "+0.0"),
        # Rounded to nothing, a loss is none.
        (wording.points(-0.0001), "+0.0"),
        (wording.points_interval([-0.1, 0.21]), "−10.0 to +21.0"),
        (wording.share_interval([0.546, 0.761]), "54.6 to 76.1"),
        (wording.number_interval([0.2, 1]), "0.200 to 1.000"),
        # A bound that was no number is no interval.
        (wording.share_interval([0.5, None]), "–"),
        (wording.p_value(0.0312), "0.031"),
        (wording.p_value(0.0001), "< 0.001"),
        (wording.p_value(1.0), "1.000"),
        (wording.title("no_learning_signal"), "No learning signal"),
        (wording.counted(1, "alarm"), "1 alarm"),
        (wording.counted(0, "alarm"), "0 alarms"),
        (wording.ordered({"b": 1, "z": 2, "a": 3}, ["a", "b"]), [("a", 3), ("b", 1), ("z", 2)]),
    ],
)  # fmt: skip
def test_how_a_figure_reads(shown: object, expected: object) -> None:
    assert shown == expected


@pytest.mark.parametrize(
    "shown",
    [wording.percent, wording.share, wording.number, wording.points, wording.p_value,
     wording.share_interval, wording.number_interval, wording.points_interval],
)  # fmt: skip
def test_nothing_reads_as_a_dash(shown: Any) -> None:
    assert shown(None) == wording.NONE
