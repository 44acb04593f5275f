"use strict";
(() => {
  const clips = JSON.parse(document.getElementById("clip-data").textContent);
  const section = document.getElementById("clips");
  const [form, count, keys, browser] = [".filters", ".count", ".keys", ".browser"].map((name) => section.querySelector(name));
  const [list, pane] = [".list", ".pane"].map((name) => section.querySelector(name));
  const wide = window.matchMedia("(min-width: 60rem)");
  const detail = make("article", "clip");
  let shown = [];
  let current = null;

  // Text only ever enters the page as text.
  function make(tag, className = "", ...children) {
    const element = document.createElement(tag);
    if (className) element.className = className;
    element.append(...children);
    return element;
  }

  function draw(tag, attributes, text = "") {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.textContent = text;
    return element;
  }

  const outcome = (answer) => (answer.correct ? "right" : "wrong");
  const said = (answer) => answer.predicted ?? "malformed";
  const percent = (share) => `${Math.round(100 * share)} %`;
  const malformed = (answer) => !answer.well_formed;
  const outcomeMark = (answer) => make("span", outcome(answer), answer.correct ? "✓ right" : "✗ wrong");

  const rows = new Map(clips.map((clip) => [clip, rowOf(clip)]));

  function rowOf(clip) {
    const { trained, base } = clip.answers;
    const tags = make("span", "tags", outcomeMark(trained), `says ${said(trained)}, is ${clip.gold}`);
    if (trained.well_formed) tags.append(make("span", "", `confidence ${percent(trained.confidence)}`));
    if (clip.is_pivot) tags.append(make("span", "", `Pivot${clip.stratum ? `: ${clip.stratum}` : ""}`));
    if (base && base.predicted !== trained.predicted) tags.append(make("span", "", `base: ${said(base)}`));
    const button = make("button", "row", make("span", "line", clip.line), tags);
    button.type = "button";
    button.tabIndex = -1;
    button.addEventListener("click", () => choose(clip));
    return make("li", "", button);
  }

  const text = (clip) => [
    clip.clip_id, clip.speaker, clip.line, ...clip.context.flat(), ...Object.values(clip.answers).map((answer) => answer.text),
  ].join("\n").toLowerCase();

  const tests = {
    text: (clip, wanted) => wanted.toLowerCase().split(/\s+/).every((word) => text(clip).includes(word)),
    gold: (clip, wanted) => clip.gold === wanted,
    outcome: (clip, wanted) => outcome(clip.answers.trained) === wanted,
    pivot: (clip, wanted) => (wanted === "pivot" ? clip.is_pivot : wanted === "rest" ? !clip.is_pivot : clip.stratum === wanted),
    change: ({ answers: { base, trained } }, wanted) => Boolean(base) && (
      wanted === "changed" ? base.predicted !== trained.predicted
        : base.correct !== trained.correct && trained.correct === (wanted === "gained")),
    form: (clip, wanted) => (wanted === "trained" ? malformed(clip.answers.trained) : Object.values(clip.answers).some(malformed)),
  };
  const orders = {
    sure: (a, b) => b.answers.trained.confidence - a.answers.trained.confidence,
    unsure: (a, b) => a.answers.trained.confidence - b.answers.trained.confidence,
    sarcastic: (a, b) => b.answers.trained.p_sarcastic - a.answers.trained.p_sarcastic,
  };

  function filter() {
    const { order, ...wanted } = Object.fromEntries(new FormData(form));
    const set = Object.entries(wanted).filter(([, value]) => value.trim());
    shown = clips.filter((clip) => set.every(([name, value]) => tests[name](clip, value.trim())));
    if (order) shown.sort(orders[order]);
    list.replaceChildren(...shown.map((clip) => rows.get(clip)));
    const right = shown.filter((clip) => clip.answers.trained.correct).length;
    count.textContent = shown.length
      ? `${shown.length} of ${clips.length} clips, the trained policy is right on ${right} (${percent(right / shown.length)})`
      : `None of ${clips.length} clips. Reset the filters to see them all.`;
    choose(shown.includes(current) ? current : shown[0] ?? null);
  }

  function choose(clip) {
    const before = rows.get(current)?.firstChild;
    if (before) {
      before.removeAttribute("aria-current");
      before.tabIndex = -1;
    }
    current = clip;
    detail.replaceChildren();
    if (!clip) return;
    const button = rows.get(clip).firstChild;
    button.setAttribute("aria-current", "true");
    button.tabIndex = 0;
    detail.append(...describe(clip));
    place();
  }

  function place() {
    if (current) (wide.matches ? pane : rows.get(current)).append(detail);
    pane.scrollTop = 0;
  }

  function describe(clip) {
    const context = make("ol", "context", ...clip.context.map(([who, line]) => make("li", "", make("b", "", who), ` ${line}`)));
    const policies = ["base", "trained", "warm", "champion"].filter((name) => name in clip.answers);
    const prompt = make("details", "", make("summary", "", "The prompt as the policies read it"), make("pre", "", clip.prompt));
    return [
      make("p", "id", `${clip.clip_id}, gold label: ${clip.gold}`), context,
      make("p", "said", make("b", "", clip.speaker)), make("h3", "", clip.line),
      contour(clip.contour_st), make("div", "answers", ...policies.map((name) => answerOf(name, clip.answers[name]))), others(clip.others), prompt,
    ];
  }

  function answerOf(name, answer) {
    const what = make("p", "said-what", outcomeMark(answer), `: ${said(answer)}`);
    if (answer.well_formed) what.append(`, confidence ${percent(answer.confidence)}`);
    if (answer.well_formed && !answer.strict) what.append(", not in the strict form");
    return make("div", `answer ${name}`, make("h4", "", name), what, make("pre", "", answer.text || "(empty)"));
  }

  function others(answers) {
    const names = Object.keys(answers);
    if (!names.length) return "";
    const lines = names.map((name) => make("tr", "",
      make("th", "", name.replaceAll("_", " ")), make("td", "", said(answers[name])), make("td", "", answers[name].p_sarcastic.toFixed(2))));
    const head = make("tr", "", make("th", "", "Other passes"), make("th", "", "answer"), make("th", "", "P(sarcastic)"));
    return make("div", "others scroll", make("table", "", make("thead", "", head), make("tbody", "", ...lines)));
  }

  // Bars are the slices that the policy reads, in semitones from the clip's median.
  function contour(slices) {
    const heard = (slices ?? []).filter((value) => value !== null);
    if (!heard.length) return make("p", "id", slices ? "Pitch contour: not measurable" : "Prosody: not available");
    const [width, height, left, limit] = [320, 96, 44, Math.max(3, ...heard.map(Math.abs)) + 1];
    const y = (value) => (height / 2) * (1 - value / limit);
    const step = (width - left) / slices.length;
    const label = `Pitch contour in semitones: ${slices.map((value) => value ?? "unvoiced").join(", ")}`;
    const picture = draw("svg", { class: "contour", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
    picture.append(draw("line", { class: "zero", x1: left, x2: width, y1: y(0), y2: y(0) }));
    for (const mark of [Math.floor(limit - 1), 0, -Math.floor(limit - 1)]) {
      picture.append(draw("text", { x: left - 6, y: y(mark) + 3.5, "text-anchor": "end" }, mark ? `${mark > 0 ? "+" : "−"}${Math.abs(mark)} st` : "0"));
    }
    slices.forEach((value, index) => picture.append(draw("line", {
      class: value === null ? "gap" : "slice", x1: left + index * step + 2, x2: left + (index + 1) * step - 2, y1: y(value ?? 0), y2: y(value ?? 0),
    })));
    return picture;
  }

  const moves = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, Home: -Infinity, End: Infinity };
  list.addEventListener("keydown", (event) => {
    const move = moves[event.key];
    if (move === undefined || event.ctrlKey || event.metaKey || event.altKey || !event.target.matches(".row")) return;
    event.preventDefault();
    const index = Math.min(shown.length - 1, Math.max(0, shown.indexOf(current) + move));
    choose(shown[index]);
    rows.get(current).firstChild.focus();
  });
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(filter));
  wide.addEventListener("change", place);
  for (const element of [form, count, keys, browser]) element.hidden = false;
  filter();
})();
