"""The report in a real browser: by eye, by keyboard, on a phone, on a projector, in the dark."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from support.evaluation import example

from subtext.config import PromptConfig
from subtext.evaluation.report.clips import clip_rows
from subtext.evaluation.report.page import render_report, write_report
from subtext.evaluation.report.plots import draw_plots

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")

HOSTILE = "</script><img src=x onerror='window.hacked=1'><script>window.hacked=1</script>\u2028"
LONGEST_WORD = "a" * 1500
MADE = example(champion=True)
MIN_CONTRAST = 4.5  # WCAG 2.2, 1.4.3
# Every element with text of its own: its colour against the first opaque colour behind it.
CONTRASTS = """() => {
  const parts = (colour) => (colour.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const light = (rgb) => {
    const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = rgb.map((value) => linear(value / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const colour = parts(getComputedStyle(element).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *, .plot text")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    const seen = element.getClientRects().length && element.tagName !== "OPTION";
    if (!own || !seen) continue;
    const style = getComputedStyle(element);
    const colour = parts(element.ownerSVGElement ? style.fill : style.color).slice(0, 3);
    const [high, low] = [light(colour), light(behind(element))].sort((a, b) => b - a);
    found.push([(high + 0.05) / (low + 0.05), element.textContent.slice(0, 40)]);
  }
  return found;
}"""


def rows() -> list[dict[str, Any]]:
    """The example's clips, the first with text that attacks, the second with a word without end."""
    clips = deepcopy(clip_rows(MADE.records, MADE.scenarios, PromptConfig(), MADE.strata))
    clips[0] |= {"line": HOSTILE, "speaker": HOSTILE, "prompt": HOSTILE}
    clips[0]["answers"]["trained"]["text"] = HOSTILE
    clips[1] |= {"line": LONGEST_WORD, "prompt": LONGEST_WORD, "contour_st": [None] * 10}
    clips[1]["answers"]["trained"]["text"] = LONGEST_WORD
    clips[2]["contour_st"] = None
    return clips


ROWS = rows()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    evaluation = deepcopy(MADE.evaluation)
    evaluation["warnings"] = [{"name": "leak", "message": f"Read this first. {HOSTILE}"}]
    html = render_report(evaluation, ROWS, draw_plots(evaluation, MADE.log_history))
    return write_report(tmp_path_factory.mktemp("run") / "report.html", html).as_uri()


@pytest.fixture
def opened(browser: Any, address: str) -> Iterator[Callable[..., Any]]:
    """Opens the page with the options of a browser context. Afterwards it must have said nothing
    on the console and asked for no address but its own."""
    pages, said, asked = [], [], []

    def open_page(width: int = 1280, height: int = 900, **options: Any) -> Any:
        size = {"width": width, "height": height}
        page = browser.new_context(viewport=size, **options).new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        pages.append(page)
        return page

    yield open_page
    hacked = [page.evaluate("window.hacked") for page in pages]
    for page in pages:
        page.context.close()
    assert said == []
    assert set(asked) == {address}
    assert not any(hacked)


def lines(page: Any) -> list[str]:
    return page.locator(".row .line").all_text_contents()


def current(page: Any) -> str:
    return page.locator(".row[aria-current] .line").text_content()


def trained(clip: dict[str, Any]) -> dict[str, Any]:
    return clip["answers"]["trained"]


FILTERS: dict[tuple[str, str], Callable[[dict[str, Any]], bool]] = {
    ("gold", "sarcastic"): lambda clip: clip["gold"] == "sarcastic",
    ("outcome", "right"): lambda clip: trained(clip)["correct"],
    ("outcome", "wrong"): lambda clip: not trained(clip)["correct"],
    ("pivot", "pivot"): lambda clip: clip["is_pivot"],
    ("pivot", "rest"): lambda clip: not clip["is_pivot"],
    ("pivot", "ambiguous"): lambda clip: clip["stratum"] == "ambiguous",
    ("change", "changed"): lambda clip: (
        clip["answers"]["base"]["predicted"] != trained(clip)["predicted"]
    ),
    ("change", "gained"): lambda clip: (
        trained(clip)["correct"] and not clip["answers"]["base"]["correct"]
    ),
    ("change", "lost"): lambda clip: (
        not trained(clip)["correct"] and clip["answers"]["base"]["correct"]
    ),
    ("form", "trained"): lambda clip: not trained(clip)["well_formed"],
    ("form", "some"): lambda clip: not all(a["well_formed"] for a in clip["answers"].values()),
}


def test_each_filter_leaves_the_clips_that_fit(opened: Any) -> None:
    page = opened()
    assert lines(page) == [clip["line"] for clip in ROWS]
    for (name, value), fits in FILTERS.items():
        page.select_option(f"[name={name}]", value)
        expected = [clip["line"] for clip in ROWS if fits(clip)]
        assert 0 < len(expected) < len(ROWS), (name, value)
        assert lines(page) == expected, (name, value)
        assert page.locator(".count").text_content().startswith(f"{len(expected)} of {len(ROWS)}")
        page.click("button[type=reset]")
        playwright.expect(page.locator(".row")).to_have_count(len(ROWS))


def test_filters_and_words_narrow_each_other(opened: Any) -> None:
    page = opened()
    page.select_option("[name=gold]", "sarcastic")
    page.fill("[name=text]", "THE you")
    expected = [
        clip["line"]
        for clip in ROWS
        if clip["gold"] == "sarcastic" and all(word in everything(clip) for word in ("the", "you"))
    ]
    assert expected and lines(page) == expected
    page.fill("[name=text]", ROWS[5]["clip_id"])
    page.select_option("[name=gold]", ROWS[5]["gold"])
    assert lines(page) == [ROWS[5]["line"]] == [current(page)]
    page.fill("[name=text]", "no clip says this")
    assert lines(page) == [] and page.locator(".clip").text_content() == ""
    assert page.locator(".count").text_content().startswith("None of 71 clips")
    page.press("[name=text]", "Enter")
    page.fill("[name=text]", "")
    page.select_option("[name=gold]", "")
    assert len(lines(page)) == len(ROWS)


def everything(clip: dict[str, Any]) -> str:
    context = (text for pair in clip["context"] for text in pair)
    said = (answer["text"] for answer in clip["answers"].values())
    return "\n".join([clip["clip_id"], clip["speaker"], clip["line"], *context, *said]).lower()


def test_clips_are_ordered_by_confidence(opened: Any) -> None:
    page = opened()
    for order, sign in (("sure", -1), ("unsure", 1)):
        page.select_option("[name=order]", order)
        expected = sorted(ROWS, key=lambda clip: sign * trained(clip)["confidence"])
        assert lines(page) == [clip["line"] for clip in expected]
    page.select_option("[name=order]", "")
    assert lines(page) == [clip["line"] for clip in ROWS]


def test_a_clip_shows_what_was_read_and_answered(opened: Any) -> None:
    page = opened()
    clip = ROWS[5]
    page.locator(".row").nth(5).click()
    detail = page.locator(".clip")
    assert detail.locator("h3").text_content() == clip["line"]
    for name, answer in clip["answers"].items():
        assert detail.locator(f".answer.{name} pre").text_content() == answer["text"]
        mark = "✓ right" if answer["correct"] else "✗ wrong"
        assert mark in detail.locator(f".answer.{name} .said-what").text_content()
    assert detail.locator("details pre").text_content() == clip["prompt"]
    assert not detail.locator("details pre").is_visible()
    detail.locator("summary").click()
    assert detail.locator("details pre").is_visible()
    heard = [value for value in clip["contour_st"] if value is not None]
    assert detail.locator(".contour .slice").count() == len(heard)
    assert f"{clip['contour_st'][0]:g}" in detail.locator(".contour").get_attribute("aria-label")
    for index, said in ((1, "not measurable"), (2, "not available")):
        page.locator(".row").nth(index).click()
        assert said in detail.text_content() and not detail.locator(".contour").count()


def test_hostile_text_is_shown_as_text(opened: Any) -> None:
    page = opened()
    assert page.locator(".clip h3").text_content() == HOSTILE
    assert page.locator(".clip .answer.trained pre").text_content() == HOSTILE
    assert HOSTILE in page.locator(".doubts").text_content()
    assert page.locator("img").count() == 0


def test_the_keyboard_alone_reaches_everything(opened: Any) -> None:
    page = opened()
    page.keyboard.press("Tab")
    skip = page.locator(":focus")
    assert skip.text_content() == "Skip to the results" and skip.bounding_box()["x"] >= 0
    reached = set()
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "[document.activeElement.tagName, document.activeElement.name || "
                "document.activeElement.className].join(' ')"
            )
        )
        if "BUTTON row" in reached:
            break
    names = {"text", "gold", "outcome", "pivot", "change", "form", "order"}
    assert {"BUTTON row", "DIV scroll", "SUMMARY "} <= reached
    assert {
        entry.split()[-1] for entry in reached if entry.startswith(("INPUT", "SELECT"))
    } == names
    for key, index in (("j", 1), ("ArrowDown", 2), ("k", 1), ("ArrowUp", 0), ("k", 0),
                       ("End", len(ROWS) - 1), ("j", len(ROWS) - 1), ("Home", 0)):  # fmt: skip
        page.keyboard.press(key)
        assert current(page) == ROWS[index]["line"], key
        assert page.locator(":focus .line").text_content() == ROWS[index]["line"]
        assert page.locator(".row[tabindex='0']").count() == 1
        assert page.locator(":focus").evaluate("e => getComputedStyle(e).outlineStyle") == "solid"
        assert page.locator(".clip h3").text_content() == ROWS[index]["line"]


def test_letters_typed_into_the_search_do_not_move(opened: Any) -> None:
    page = opened()
    page.locator("[name=text]").press_sequentially("jk")
    assert page.input_value("[name=text]") == "jk"


def test_every_control_has_a_name(opened: Any) -> None:
    page = opened()
    for control in page.locator("input, select").all():
        assert control.evaluate("e => e.labels[0].textContent.trim().length > 0")
    for heading in ("th", "h1", "h2"):
        assert all(text.strip() for text in page.locator(heading).all_text_contents())
    assert page.locator(".count[aria-live=polite]").count() == 1
    assert page.locator(".plot[role=img][aria-label]").count() == page.locator(".plot").count() == 6


@pytest.mark.parametrize("width", [320, 390, 768, 1280, 1920])
def test_the_page_never_scrolls_sideways(opened: Any, width: int) -> None:
    page = opened(width)
    for index in range(3):
        page.locator(".row").nth(index).click()
        page.locator(".clip summary").click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("#results summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # What is too wide scrolls inside its own box, whole.
    boxes = page.locator(".scroll").evaluate_all(
        "boxes => boxes.map(b => [b.scrollWidth > b.clientWidth, getComputedStyle(b).overflowX])"
    )
    assert all(overflow == "auto" for _, overflow in boxes)
    assert any(wider for wider, _ in boxes) == (width <= 768)


def test_type_is_readable_from_the_back_row(opened: Any) -> None:
    sizes = {}
    for width in (390, 1920):
        page = opened(width)
        sizes[width] = page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)")
        small = page.locator("td small, .tags, dt").evaluate_all(
            "all => Math.min(...all.map(e => parseFloat(getComputedStyle(e).fontSize)))"
        )
        assert small >= 0.7 * sizes[width]
    assert sizes[390] >= 16 and sizes[1920] >= 20


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(opened: Any, scheme: str) -> None:
    page = opened(color_scheme=scheme)
    page.locator(".row").nth(3).click()
    found = page.evaluate(CONTRASTS)
    assert len(found) > 500
    poor = [(round(ratio, 2), text) for ratio, text in found if ratio < MIN_CONTRAST]
    assert poor == []
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(253, 253, 252)", "dark": "rgb(21, 24, 27)"}[scheme]


def test_a_phone_shows_a_clip_under_its_line(opened: Any) -> None:
    page = opened(390, 844)
    page.locator(".row").nth(4).click()
    row, detail = page.locator(".row").nth(4).bounding_box(), page.locator(".clip").bounding_box()
    following = page.locator(".row").nth(5).bounding_box()
    assert row["y"] < detail["y"] < following["y"]
    page.set_viewport_size({"width": 1280, "height": 900})
    assert page.locator(".pane .clip h3").text_content() == ROWS[4]["line"]


def test_figures_need_no_script(opened: Any) -> None:
    page = opened(java_script_enabled=False)
    assert page.locator(".plot svg").count() == 6
    assert page.locator("table").count() >= 5
    assert page.locator("noscript p").is_visible()
    assert not page.locator(".filters").is_visible()


def test_motion_and_paper_are_respected(opened: Any) -> None:
    page = opened(reduced_motion="reduce")
    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    page.emulate_media(media="print")
    assert not page.locator(".filters").is_visible()
    assert page.locator(".doubts").is_visible()


def test_an_injected_script_would_not_run(opened: Any, address: str, tmp_path: Path) -> None:
    """The policy allows the page's own script alone, should escaping ever fail."""
    html = Path(address.removeprefix("file://")).read_text("utf-8")
    broken = tmp_path / "broken.html"
    broken.write_text(html.replace("<main>", "<main><script>window.hacked = 1</script>"), "utf-8")
    page = opened()
    other = page.context.new_page()
    other.goto(broken.as_uri())
    assert other.evaluate("window.hacked") is None
    assert other.locator(".row").count() == len(ROWS)
