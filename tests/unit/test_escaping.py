"""Foreign text wherever it is shown: what it holds is read, never obeyed.

A corpus, answers and an evaluation whose every text is an attack are led through each place that
shows them: report, model card, Prefect's artifacts, terminal. `tests/contracts/test_report_browser`
opens the report in a browser; here one does too, where there is one.
"""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console
from support import evaluation as made_up
from support.corpus import write_corpus
from support.finished_run import BASE
from support.judged_run import judged_run

from subtext import strict_json
from subtext.cli.judge import _table
from subtext.config import PromptConfig
from subtext.data.validate import validate
from subtext.data.validate_table import render_report as render_corpus
from subtext.data.validate_table import report_rows
from subtext.evaluation.report.clips import clip_rows
from subtext.evaluation.report.page import render_report
from subtext.evaluation.report.plots import draw_plots
from subtext.markdown import code, escaped, markdown_table
from subtext.printable import printable
from subtext.publishing.card import render_card
from subtext.run_dir import RunDir, load_config
from subtext.summary import render_summary
from tasks import artifacts

# Each holds PAYLOAD_WORD, so that a test knows that it arrived.
WORD = "PWN"
PAYLOADS = (
    f"</script><script>window.hacked='{WORD}'</script>",
    f"<img src=https://evil.invalid/{WORD} onerror=window.hacked=1>",
    f"\"><svg onload=window.hacked=1>{WORD}</svg>",
    f"![{WORD}](https://evil.invalid/x.png)",
    f"[{WORD}](javascript:window.hacked=1)",
    f"| {WORD} | a\\|b | `x | y` |",
    f"`{WORD}`` ``` <b>",
    f"# {WORD}", f"- {WORD}", f"1. {WORD}", f"> {WORD}", f"--- {WORD}",
    f"**{WORD}** _{WORD}_ ~~x~~",
    f"[red]{WORD}[/red] [link=https://evil.invalid]x[/link] [/]",
    f"\u202e{WORD}\u2066", f"&lt;{WORD}&gt; &amp; &#x3c;", f"{{{{ {WORD} }}}} {{% raw %}}",
    f"$\\frac{{{WORD}}}$ $", f"</textarea></style></title>{WORD}", f"<!-- {WORD} -->",
    f"{WORD}\u2028{WORD}", f"https://{WORD}.invalid", f"=HYPERLINK(\"x\";\"{WORD}\")",
)  # fmt: skip
# Refused in a corpus; a model may write them, and files may be edited.
COMMANDS = (
    f"\x1b[2J\x1b]8;;https://evil.invalid\x07{WORD}\x1b]8;;\x07", f"\x1b]52;c;{WORD}\x07",
    f"\x9b2J{WORD}", f"\r{WORD}\b\b", f"\x00{WORD}\x7f",
)  # fmt: skip
HARSH = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])

anything = st.lists(
    st.sampled_from([*PAYLOADS, *"\\`*_[]()<>&!#+-=|~$.1 :\n\t", "ab", "é"]) | st.text(max_size=6),
    max_size=8,
).map("".join)


def one_line(text: str) -> str:
    return printable(" ".join(text.splitlines()).strip())


def as_html(text: str) -> str:
    """`text` as markdown-it writes it in a page."""
    return html.escape(one_line(text), quote=False).replace('"', "&quot;")


def collapsed(text: str) -> str:
    return " ".join(text.split())


class TestMarkdown:
    @given(anything)
    def test_an_escaped_text_shows_itself_in_a_paragraph_a_list_and_bold(self, text: str) -> None:
        shown = as_html(text)
        if not shown.strip():
            return
        for before, after, tags in (
            ("", "", "<p>{}</p>"),
            ("- ", "", "<ul>\n<li>{}</li>\n</ul>"),
            ("It says: ", "", "<p>It says: {}</p>"),
        ):
            found = HARSH.render(f"{before}{escaped(text)}{after}").strip()
            assert collapsed(found) == collapsed(tags.format(shown))

    @given(anything)
    def test_code_shows_itself(self, text: str) -> None:
        shown = as_html(text)
        if shown.strip():
            found = HARSH.render(f"Is {code(text)} it?").strip()
            assert collapsed(found) == collapsed(f"<p>Is <code>{shown}</code> it?</p>")

    @given(st.lists(st.tuples(anything, anything), min_size=1, max_size=3))
    def test_a_table_keeps_every_cell(self, rows: list[tuple[str, str]]) -> None:
        found = HARSH.render(markdown_table(("one", "two"), rows))
        cells = re.findall(r"<td>(.*?)</td>", found, re.DOTALL)
        expected = [collapsed(as_html(cell)) for row in rows for cell in row]
        assert [collapsed(cell) for cell in cells] == expected

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("TF-IDF line + context", "TF-IDF line + context"),
            ("+0.056 (-0.05 to +0.12)", "+0.056 (-0.05 to +0.12)"),
            ("data_digest of https://a.b/c_d", "data_digest of https://a.b/c_d"),
            ("well-formed, 12 %", "well-formed, 12 %"),
            ("_so_", r"\_so\_"),
            ("1. first", r"1\. first"),
            ("- item", r"\- item"),
            ("< 0.001", "&lt; 0.001"),
        ],
    )
    def test_plain_text_stays_as_it_is_read(self, text: str, expected: str) -> None:
        assert escaped(text) == expected


@pytest.mark.parametrize("text", COMMANDS)
def test_commands_to_a_terminal_become_visible(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert WORD in shown
    assert printable("tab\tand\nline, é, 猫, \U0001f600") == "tab\tand\nline, é, 猫, \U0001f600"


@dataclass(frozen=True)
class Hostile:
    """A judged run, and what was judged; every text of it is a payload."""

    run: RunDir
    evaluation: dict[str, Any]
    scenarios: dict[str, dict[str, Any]]
    clips: list[dict[str, Any]]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    folder = tmp_path_factory.mktemp("hostile")
    root = hostile_corpus(folder / "corpus")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made_up, "DEMO", root)
        patch.setattr(made_up, "_CUES", PAYLOADS)
        made = made_up.example.__wrapped__(60, champion=True)
    # judged_run's own example is the demo's, under its cache.
    run = judged_run(folder / "demo-20260101-120000-abc123")
    evaluation = hostile_evaluation(made.evaluation)
    strict_json.write(run.metrics, evaluation)
    strict_json.write(
        run.gate,
        {"decision": "stay", "reasons": [
            {"rule": text, "passed": False, "text": text} for text in PAYLOADS]},
    )  # fmt: skip
    strict_json.write(run.judged_model, evaluation["judged_model"])
    strict_json.write(
        run.tracking,
        {"run_id": "`<b> |", "uri": "http://mlflow.test/\"><svg onload=x>", "experiment_id": "<i>",
         "model": {"name": PAYLOADS[3], "version": 1, "alias": PAYLOADS[4], "uri": PAYLOADS[5]}},
    )  # fmt: skip
    strict_json.write(
        run.published, {PAYLOADS[0]: {"url": PAYLOADS[1], "revision": PAYLOADS[2], "files": {}}}
    )
    clips = clip_rows(made.records, made.scenarios, PromptConfig(speaker="named"), made.strata)
    yield Hostile(run, evaluation, made.scenarios, clips)


def hostile_corpus(root: Path) -> Path:
    """A corpus with payloads for lines, context, speakers and shows, in turn."""
    write_corpus(root, n_clips=120)
    path = root / "sarcasm_data.json"
    clips = json.loads(path.read_text())
    texts = [text for text in PAYLOADS if text.strip()]
    for index, clip in enumerate(clips.values()):
        clip["utterance"] = texts[index % len(texts)]
        clip["speaker"] = texts[(index // 2) % len(texts)]
        clip["show"] = texts[(index // 3) % len(texts)]
        clip["context"] = [texts[(index + 1) % len(texts)], texts[(index + 2) % len(texts)]]
        clip["context_speakers"] = [texts[(index + 3) % len(texts)], clip["speaker"]]
    path.write_text(json.dumps(clips))
    return root


def hostile_evaluation(evaluation: dict[str, Any]) -> dict[str, Any]:
    """`evaluation` as somebody might have edited it: payloads for every text that is free."""
    changed = json.loads(json.dumps(evaluation))
    changed["verdict"] = " ".join(PAYLOADS)
    for key in ("alarms", "warnings"):
        changed[key] = [{"name": text, "message": text} for text in PAYLOADS]
    for row, text in zip(changed["comparisons"], PAYLOADS, strict=False):
        row["name"] = text
    for row, text in zip(changed["ablations"].values(), PAYLOADS, strict=False):
        row["label"] = text
    changed["champion"]["reason"] = changed["champion"]["uri"] = PAYLOADS[0]
    changed["judged_model"] = {
        "model": PAYLOADS[1], "n_judged": 1, "n_trained_on": None, "n_same_scene": None,
    }  # fmt: skip
    changed["run_id"] = PAYLOADS[2]
    changed["split"]["corpus"] = changed["split"]["kind"] = PAYLOADS[0]
    return dict(changed)


def report_of(hostile: Hostile) -> str:
    plots = draw_plots(hostile.evaluation, made_up.log_history())
    return render_report(hostile.evaluation, hostile.clips, plots)


class Tags(HTMLParser):
    """Names of elements and attributes, addresses, and the text of the scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.addresses: set[str] = set()
        self.n_scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.n_scripts += tag == "script"
        for name, value in attrs:
            self.attributes.add(name)
            if name in ("href", "src", "action", "xlink:href"):
                self.addresses.add(value or "")


def test_the_report_is_what_it_is_without_foreign_text(hostile: Hostile) -> None:
    page, plain = Tags(), Tags()
    text = report_of(hostile)
    page.feed(text)
    made = made_up.example(60, champion=True)
    doubt = [{"name": "leak", "message": "Names tell."}]
    usual = render_report(
        {**made.evaluation, "alarms": doubt, "warnings": doubt},
        clip_rows(made.records, made.scenarios, PromptConfig(), made.strata),
        draw_plots(made.evaluation, made.log_history),
    )
    plain.feed(usual)
    assert WORD in text
    assert page.names <= plain.names
    assert page.attributes <= plain.attributes | {"title"}
    assert page.n_scripts == plain.n_scripts == 2
    assert page.addresses == plain.addresses


@pytest.mark.slow
def test_in_a_browser_nothing_runs_and_nothing_is_asked_for(
    hostile: Hostile, tmp_path: Path
) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Debian's chromium is not installed")
    page_path = tmp_path / "report.html"
    page_path.write_text(report_of(hostile), "utf-8")
    rendered = {
        "report": page_path,
        "card": as_page(tmp_path / "card.html", card_of(hostile)),
        "artifacts": as_page(tmp_path / "artifacts.html", "\n\n".join(artifacts_of(hostile))),
    }
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, path in rendered.items():
            asked: list[str] = []
            page = browser.new_page()
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.goto(path.as_uri())
            if name == "report":
                for row in page.locator(".row").all()[: len(PAYLOADS)]:
                    row.click()
            assert WORD in page.content()
            assert page.evaluate("window.hacked") is None, name
            assert asked == [path.as_uri()], name
            assert page.locator("img, iframe, object, embed, form[action]").count() == 0, name
        browser.close()


def as_page(path: Path, markdown: str) -> Path:
    """The Markdown as a page, made by a renderer that lets HTML through."""
    path.write_text(f"<!doctype html><meta charset=utf-8>{HARSH.render(markdown)}", "utf-8")
    return path


def card_of(hostile: Hostile) -> str:
    run = hostile.run
    base = {**BASE, "source": "path", "name": "`x` <img src=x onerror=window.hacked=1>"}
    return render_card(run, load_config(run), base, hostile.evaluation)


def artifacts_of(hostile: Hostile) -> list[str]:
    """The Markdown, and the titles, of every artifact that describes the run."""
    shown: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(artifacts, "quietly", lambda make: make())
        patch.setattr(
            artifacts, "create_markdown_artifact", lambda text, key, title: shown.extend([text])
        )
        patch.setattr(artifacts, "create_table_artifact", lambda rows, key, title: None)
        for show in (artifacts.show_evaluation, artifacts.show_gate, artifacts.show_places):
            show(hostile.run)
    assert len(shown) == 3
    return shown


def foreign_markup(markdown: str) -> list[str]:
    """What in `markdown` is HTML, an image, or a link to somewhere evil."""
    found: list[str] = []
    pending: list[Any] = HARSH.parse(markdown)
    while pending:
        token = pending.pop()
        pending += token.children or []
        target = str(token.attrGet("href") or "")
        evil = WORD in target or "evil" in target or "hacked" in target
        if token.type in ("html_block", "html_inline", "image") or evil:
            found.append(f"{token.type}: {token.content or target}")
    return found


def test_the_card_has_no_foreign_markup(hostile: Hostile) -> None:
    _, header, body = card_of(hostile).split("---\n", 2)
    assert set(yaml.safe_load(header)) <= {
        "base_model", "library_name", "pipeline_tag", "language", "datasets", "tags",
    }  # fmt: skip
    assert WORD in body
    assert foreign_markup(body) == []
    headings = re.findall(r"^#+ .*", body, re.MULTILINE)
    assert not [heading for heading in headings if WORD in heading]


@pytest.mark.parametrize("index", range(3), ids=["verdict", "gate", "places"])
def test_artifacts_have_no_foreign_markup(hostile: Hostile, index: int) -> None:
    markdown = artifacts_of(hostile)[index]
    assert WORD in markdown
    assert foreign_markup(markdown) == []


def printed(*parts: Any) -> str:
    """What a terminal gets, with colours and links, as one that has all of them."""
    console = Console(width=300, force_terminal=True, color_system="truecolor")
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return capture.get()


_STYLE = re.compile("\x1b\\[[0-9;]*m")  # colours are rich's own


def assert_shown(text: str, payloads: Sequence[str]) -> None:
    plain = _STYLE.sub("", text)
    assert WORD in plain
    assert not [char for char in plain if not char.isprintable() and char not in "\n\t"]
    assert "\x1b]8" not in text
    for payload in payloads:
        assert collapsed(printable(payload)) in collapsed(plain), payload


def test_the_summary_of_a_run_is_text(hostile: Hostile) -> None:
    evaluation = dict(hostile.evaluation)
    for key in ("alarms", "warnings"):
        evaluation[key] = [{"name": "x", "message": text} for text in (*PAYLOADS, *COMMANDS)]
    strict_json.write(hostile.run.metrics, evaluation)
    try:
        shown = printed(render_summary(hostile.run))
    finally:
        strict_json.write(hostile.run.metrics, hostile.evaluation)
    one = [text for text in (*PAYLOADS, *COMMANDS) if len(text.splitlines()) == 1]
    assert_shown(shown, one)


def test_the_report_on_a_corpus_is_text(tmp_path: Path) -> None:
    """Validation shows what loading would refuse."""
    root = hostile_corpus(tmp_path / "corpus")
    path = root / "sarcasm_data.json"
    clips = json.loads(path.read_text())
    for clip, text in zip(clips.values(), COMMANDS * 30, strict=False):
        clip["speaker"] = clip["show"] = text
    clips[COMMANDS[0]] = next(iter(clips.values()))
    path.write_text(json.dumps(clips))
    report = validate(str(root))
    assert report.problems
    assert_shown(printed(render_corpus(report)), [])
    table = markdown_table(("what", "found"), list(report_rows(report)))
    assert foreign_markup(table) == []
    assert table.isprintable() or set(filter(lambda c: not c.isprintable(), table)) == {"\n"}


def test_an_answer_on_the_terminal_is_text() -> None:
    for text in (*PAYLOADS, *COMMANDS):
        if len(text.splitlines()) > 1:
            continue
        answer = {
            "model": text, "label": None, "confidence": 0.5, "p_sarcastic": 0.5,
            "reasoning": text, "answer": text, "prosody": text,
        }  # fmt: skip
        assert_shown(printed(_table(text, answer)), [text])
