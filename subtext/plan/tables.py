"""A plan as a person reads it: on the terminal, and as Markdown in the Prefect UI."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from subtext.markdown import escaped
from subtext.plan.words import dollars, gigabytes, hours

if TYPE_CHECKING:
    from rich.console import Group

    from subtext.plan.plan import Plan

_UNKNOWN = "not looked at"


def render_plan(plan: Plan) -> Group:
    """Return what `rich` prints: one table, then warnings, then problems with their remedies."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    # Text, never str: rich reads "[…]" in a str as markup.
    table = Table(title=Text(f"Plan of a run, profile {plan.profile}"), title_justify="left",
                  show_header=False)  # fmt: skip
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in plan_rows(plan):
        table.add_row(name, Text(text))
    lines = [Text(f"Note: {warning}", style="yellow") for warning in plan.warnings]
    lines += [Text(f"Problem: {problem}", style="red") for problem in plan.problems]
    return Group(table, *lines)


def plan_markdown(plan: Plan) -> str:
    """Return problems, warnings and the table as Markdown; lists, since Prefect wraps no cell."""
    told = [f"- **Problem**: {escaped(str(problem))}" for problem in plan.problems]
    told += [f"- Note: {escaped(warning)}" for warning in plan.warnings]
    rows = [f"- **{escaped(name.strip())}** {escaped(text)}" for name, text in plan_rows(plan)]
    return "\n".join([*told, *rows])


def plan_rows(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield what the table says, line by line: a name and a text."""
    yield "device", _device(plan)
    yield "model", _model(plan)
    yield from _memory(plan)
    yield "tokens", _tokens(plan)
    yield "batch", plan.batch["in_words"]
    yield "data", _data(plan)
    for need in plan.disk:
        yield (
            "disk",
            f"{gigabytes(need['needed_bytes'])} in {need['path']} ({need['for']}); "
            f"{gigabytes(need['free_bytes'])} free",
        )
    yield "Hub", _hub(plan)
    yield "MLflow", plan.mlflow or "not reached"
    yield from _duration(plan)
    yield "problems", str(len(plan.problems)) if plan.problems else "none"


def _device(plan: Plan) -> str:
    if plan.device is None:
        return _UNKNOWN
    device = plan.device
    quantized = "4-bit NF4" if device["quantization"] == "nf4" else "unquantised"
    name = f" ({device['name']})" if device["name"] else ""
    return f"{device['device']}{name}, {device['dtype']}, {quantized}: {device['reasons'][0]}"


def _model(plan: Plan) -> str:
    if plan.model is None:
        return _UNKNOWN
    model = plan.model
    at = f" at {model['revision'][:12]}" if model["revision"] else ""
    said = f"{model['name']}{at}, {model['architecture']}"
    if model["parameters"] is not None:
        trained = model["trained_parameters"] / 1e6
        said += f", {model['parameters'] / 1e6:.1f} M parameters, {trained:.2f} M trained"
    return said


def _memory(plan: Plan) -> Iterator[tuple[str, str]]:
    if plan.memory is None:
        yield "memory", _UNKNOWN
        return
    memory = plan.memory
    yield (
        "memory",
        f"{gigabytes(memory['needed_bytes'])} estimated, {gigabytes(memory['free_bytes'])} free; "
        f"fullest in {memory['fullest']}",
    )
    counted = [part for part in memory["parts"] if part["phase"] in ("", memory["fullest"])]
    for part in counted:
        yield f"  {part['name']}", f"{gigabytes(part['bytes'])} = {part['formula']}"
    for knob in memory["lower"]:
        yield "  less", f"{gigabytes(knob['saved_bytes'])} by {knob['set']}"


def _tokens(plan: Plan) -> str:
    if plan.tokens is None:
        return _UNKNOWN
    tokens = plan.tokens
    needed = tokens["longest_prompt"] + tokens["longest_answer"]
    reads = f"; the model reads {tokens['model_reads']}" if tokens["model_reads"] else ""
    return (
        f"longest prompt {tokens['longest_prompt']} (clip {tokens['clip_id']}) + answer up to "
        f"{tokens['longest_answer']} = {needed} of {tokens['max_context_tokens']}{reads}"
    )


def _data(plan: Plan) -> str:
    if plan.data is None:
        return _UNKNOWN
    data = plan.data
    corpus = f"{data['corpus']}, " if data["corpus"] else ""
    return (
        f"{corpus}{data['clips']} clips, split {data['split']}: {data['train']} train, "
        f"{data['held_out']} held out, {data['judged']} judged"
    )


def _hub(plan: Plan) -> str:
    if not plan.config.publish.enabled:
        return "nothing is published"
    if plan.hub is None:
        return _UNKNOWN
    return f"{plan.hub['name']} ({plan.hub['role']}): " + "; ".join(
        map(_target, plan.hub["targets"])
    )


def _target(target: dict[str, Any]) -> str:
    there = "is there" if target["exists"] else "will be made"
    may = {True: "may be written to", None: "shows its write right at the first upload"}
    repository = f"{target['repo_type']} {target['repo_id']}"
    return f"{repository} {there}, {may[target['may_write']]} ({target['why']})"


def _duration(plan: Plan) -> Iterator[tuple[str, str]]:
    duration, price = plan.duration, plan.config.training.price_per_hour
    if duration is None:
        yield "duration", _UNKNOWN
        if price:
            yield "cost", f"not known without a duration; {dollars(price)} an hour"
        return
    if duration.seconds is None or duration.train_s is None or duration.judge_s is None:
        yield "duration", f"not known: {duration.basis}"
    else:
        yield (
            "duration",
            f"{hours(duration.seconds)}: training {hours(duration.train_s)}, judging up to "
            f"{hours(duration.judge_s)}; by {duration.basis}",
        )
    cost = duration.cost(price)
    if cost is not None:
        yield "cost", f"{dollars(cost)} at {dollars(price)} an hour"
    elif price:
        yield "cost", f"not known without a duration; {dollars(price)} an hour"
    else:
        yield "cost", "no price: set training.price_per_hour"
