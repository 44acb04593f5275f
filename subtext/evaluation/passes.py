"""Which policies judge which clips in an evaluation, and what each of them reads.

A *pass* is one policy answering a list of clips. `base`, `warm` and `trained` read the same
prompts; an ablation (named in `evaluation.ablations`) is the trained policy on altered ones;
`train_sample` is the trained policy on clips that it was trained on; `step_<n>` is a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from subtext.config import Ablation, RunConfig
from subtext.data.clips import Scenarios
from subtext.data.masking import Cast
from subtext.evaluation.ablations import altered
from subtext.evaluation.generalisation import train_sample
from subtext.prompts import build_messages
from subtext.run_dir import RunDir

TRAIN_SAMPLE = "train_sample"


@dataclass(frozen=True)
class Pass:
    """One policy on one list of clips. `adapter`: its folder, None for the base alone."""

    name: str
    adapter: Path | None
    clip_ids: list[str]
    messages: Callable[[str], list[dict[str, str]]]


def planned_passes(run: RunDir, config: RunConfig, scenarios: Scenarios) -> Iterator[Pass]:
    """Yield the passes of `run` in the order in which they are judged."""
    split = run.require(run.split)
    judged = split["judged"]
    as_it_is = full_messages(config, scenarios)
    yield Pass("base", None, judged, as_it_is)
    if config.warm_start.steps:
        yield Pass("warm", run.warm_adapter, judged, as_it_is)
    yield Pass("trained", run.adapter, judged, as_it_is)
    for name in config.evaluation.ablations:
        yield Pass(name, run.adapter, judged, altered_messages(name, config, scenarios, judged))
    if n_clips := config.evaluation.n_train_clips:
        sample = train_sample(scenarios, split["train"], n_clips, config.data.dataset_seed)
        yield Pass(TRAIN_SAMPLE, run.adapter, sample, as_it_is)
    if config.evaluation.judge_checkpoints:
        for step, checkpoint in run.checkpoints.items():
            if step < config.grpo.max_steps:  # the last one holds what `trained` is
                yield Pass(f"step_{step}", checkpoint, judged, as_it_is)


def full_messages(config: RunConfig, scenarios: Scenarios) -> Callable[[str], list[dict[str, str]]]:
    """Return what the policy reads of each clip, nothing altered."""
    cast = Cast.of(scenarios)
    return lambda clip_id: build_messages(clip_id, scenarios, config.prompt, cast)


def altered_messages(
    name: Ablation, config: RunConfig, scenarios: Scenarios, clip_ids: list[str]
) -> Callable[[str], list[dict[str, str]]]:
    """Return what the policy reads of each clip under the ablation `name`; names stay masked as
    in the whole corpus."""
    changed, prompt = altered(name, scenarios, clip_ids, config.prompt)
    cast = Cast.of(scenarios)
    return lambda clip_id: build_messages(clip_id, changed, prompt, cast)
