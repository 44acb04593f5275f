"""The plan of a run: what it would do, on what, for how long, and every reason why it can't.

No weights are loaded. Hub and MLflow are asked while this machine and the data are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from subtext.config import RunConfig
from subtext.data.scenarios import load_scenarios
from subtext.errors import MachineError, Problem
from subtext.evaluation.leaks import leak_report, leak_warnings
from subtext.paths import cache_dir
from subtext.plan.base import BaseFacts, base_facts
from subtext.plan.batch import batch_arithmetic
from subtext.plan.checks import Findings
from subtext.plan.duration import Duration, predict_duration
from subtext.plan.memory import estimate_memory, savings
from subtext.plan.room import disk_needs, disk_problems, free_memory
from subtext.plan.words import gigabytes
from subtext.policy.base_model import check_base
from subtext.policy.chat_template import template_problems
from subtext.policy.hush import hush_libraries
from subtext.policy.precision import MachineFacts, Precision, choose_precision, machine_facts
from subtext.policy.prompt_lengths import context_problems, measured, prompt_lengths
from subtext.prepare import (
    check_entry,
    check_runs_dir,
    fit_reference,
    make_split,
    run_directory,
)
from subtext.profiles import resolve
from subtext.publishing.access import check_access, endpoint_problems, require_token
from subtext.tracking.store import check_reachable, shown_uri, tracking_uri

Json = dict[str, Any]

# benchmarks/memory_estimate.py: peaks lie up to a quarter above the estimate.
_MARGIN = 1.25


@dataclass(frozen=True)
class Plan:
    """What was found. A section is None where it could not be looked at, for a reason that is
    among `problems`; `duration` also says why it has no seconds."""

    profile: str
    config: RunConfig
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]
    batch: Json
    device: Json | None = None
    model: Json | None = None
    memory: Json | None = None
    tokens: Json | None = None
    data: Json | None = None
    disk: list[Json] = field(default_factory=list)
    hub: Json | None = None
    mlflow: str | None = None
    duration: Duration | None = None

    @property
    def ok(self) -> bool:
        return not self.problems

    def as_json(self) -> Json:
        """For machines; `duration_s` and `cost` (US dollars) are null where they are not known."""
        duration = self.duration
        price = self.config.training.price_per_hour
        return {
            "profile": self.profile,
            "device": self.device,
            "model": self.model,
            "memory": self.memory,
            "tokens": self.tokens,
            "batch": self.batch,
            "data": self.data,
            "disk": self.disk,
            "hub": self.hub,
            "mlflow": self.mlflow,
            "duration_s": duration.seconds if duration else None,
            "duration": duration.as_json() if duration else None,
            "price_per_hour": price,
            "cost": duration.cost(price) if duration else None,
            "warnings": list(self.warnings),
            "problems": [
                {**vars(problem), "value": _plain(problem.value)} for problem in self.problems
            ],
        }

    def refuse(self) -> None:
        """Raise MachineError with every problem, if there is one."""
        if self.problems:
            raise MachineError("The run can't work", self.problems)


def make_plan(
    profile: str,
    overrides: Mapping[str, Any] | BaseModel | None,
    environ: Mapping[str, str],
    *,
    light_first: bool = False,
) -> Plan:
    """Look at everything that a run of `profile` with `overrides` needs, and gather what is wrong.

    With `light_first` nothing more is looked at where configuration, environment and data already
    have problems: no heavy library is loaded to say so. Raises ConfigError for a configuration that
    can't be parsed.
    """
    config = resolve(profile, overrides)
    findings = Findings()
    token = findings.of(lambda: require_token(config.publish, environ))
    findings.add(wrong_endpoint := endpoint_problems(environ))
    findings.of(lambda: check_runs_dir(config))
    findings.of(lambda: check_base(config.model))
    data = findings.of(lambda: _Data.load(config))
    batch = batch_arithmetic(config)
    if wrong_endpoint or (light_first and findings.problems):
        return Plan(profile, config, tuple(findings.problems), (), batch)
    uri, endpoint = tracking_uri(environ), environ.get("HF_ENDPOINT", "")
    with ThreadPoolExecutor(2) as servers:
        access = servers.submit(check_access, config.publish, token) if token else None
        store = servers.submit(check_reachable, uri)
        sections = _local(config, findings, data)
        if data and not findings.problems:
            findings.of(lambda: check_entry(config, data.scenarios, data.split))
        reached = findings.of(
            lambda: store.result() or True, ("MLFLOW_TRACKING_URI", shown_uri(uri))
        )
        allowed = findings.of(access.result, ("HF_ENDPOINT", endpoint)) if access else None
    return Plan(
        profile,
        config,
        tuple(findings.problems),
        tuple(findings.warnings),
        batch,
        hub=allowed.as_json() if allowed else None,
        mlflow=shown_uri(uri) if reached else None,
        **sections,
    )


def _plain(value: object) -> object:
    """`value` where JSON has it, else its text."""
    return value if value is None or isinstance(value, str | int | bool) else str(value)


@dataclass(frozen=True)
class _Data:
    scenarios: dict[str, dict[str, Any]]
    split: Json

    @classmethod
    def load(cls, config: RunConfig) -> _Data:
        scenarios = load_scenarios(config.data.root)
        return cls(scenarios, make_split(scenarios, config))


def _local(config: RunConfig, findings: Findings, data: _Data | None) -> Json:
    """The sections that this machine alone answers, apart from the base's small files."""
    sections: Json = {}
    facts = machine_facts(config.model.device)
    precision = findings.of(lambda: choose_precision(facts, config.model))
    if precision:
        sections["device"] = _device(precision)
    hush_libraries()
    # `check_base` has said so already where the base is not to be had.
    base = findings.of(lambda: base_facts(config.model), ("HF_ENDPOINT", ""))
    if base:
        sections["model"] = _model(base, config, findings)
        sections["disk"] = _disk(base, config, findings)
    if data:
        sections["data"] = _data(data, findings)
        if precision:
            sections["duration"] = _duration(data, config, precision, facts)
    if base and data and base.tokenizer.chat_template:
        clips = fit_reference(data.scenarios, data.split).described_clips(data.scenarios)
        clip_ids = [*data.split["train"], *data.split["judged"]]
        lengths = prompt_lengths(base.tokenizer, clip_ids, clips, config)
        limit = base.shape.max_positions if base.shape else None
        findings.add(context_problems(lengths, config, limit))
        sections["tokens"] = {**measured(lengths, config), "model_reads": limit}
        if precision:
            longest = sections["tokens"]["longest_prompt"]
            sections["memory"] = _memory(base, config, precision, longest, findings)
    return sections


def _device(precision: Precision) -> Json:
    name = ""
    if precision.device == "cuda":
        import torch

        name = torch.cuda.get_device_name(0)
    return {**asdict(precision), "reasons": list(precision.reasons), "name": name}


def _model(base: BaseFacts, config: RunConfig, findings: Findings) -> Json:
    findings.add(
        template_problems(base.tokenizer, config.model.name, warm_start=config.warm_start.steps > 0)
    )
    shape, lora = base.shape, config.lora
    return {
        "source": config.model.source,
        "name": config.model.name,
        "revision": base.revision,
        "architecture": base.architecture,
        "parameters": shape.parameters if shape else None,
        "trained_parameters": (
            shape.adapter_parameters(lora.r, lora.target_modules) if shape else None
        ),
    }


def _data(data: _Data, findings: Findings) -> Json:
    split = data.split
    findings.warnings += leak_warnings(leak_report(data.scenarios, split))
    return {
        "corpus": split["corpus"],
        "split": split["kind"],
        "clips": len(data.scenarios),
        "train": len(split["train"]),
        "held_out": len(split["held_out"]),
        "judged": len(split["judged"]),
    }


def _memory(
    base: BaseFacts, config: RunConfig, precision: Precision, longest: int, findings: Findings
) -> Json | None:
    if base.shape is None:
        findings.warnings.append(
            f"memory is not estimated: {base.architecture} is not built as the formulas assume"
        )
        return None
    estimate = estimate_memory(base.shape, config, precision, longest)
    free = free_memory(precision.device)
    lower = sorted(savings(base.shape, config, precision, longest), key=lambda knob: -knob[1])
    on_cpu = precision.device == "cpu"
    needed = estimate.needed_bytes * (config.training.num_processes if on_cpu else 1)
    if _MARGIN * needed > free:
        knobs = "; ".join(f"{knob} saves {gigabytes(saved)}" for knob, saved in lower)
        findings.add(
            [
                Problem(
                    "memory", f"free on {precision.device}", gigabytes(free),
                    f"is less than the {gigabytes(needed)} that the run would take at its fullest, "
                    f"in phase {estimate.fullest}, and a quarter more",
                    f"Free some, use a larger machine, or turn a knob: {knobs}.",
                )
            ]
        )  # fmt: skip
    return {
        **estimate.as_json(),
        "free_bytes": free,
        "lower": [{"set": knob, "saved_bytes": saved} for knob, saved in lower],
    }


def _disk(base: BaseFacts, config: RunConfig, findings: Findings) -> list[Json]:
    if base.shape is None:
        return []
    runs_dir = run_directory(config, "run").path.parent
    needs = disk_needs(
        config, base.shape, on_disk=base.on_disk, runs_dir=runs_dir, base_dir=_base_dir(config)
    )
    findings.add(disk_problems(needs))
    return needs


def _base_dir(config: RunConfig) -> Path:
    if config.model.source != "hub":
        return cache_dir()
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def _duration(
    data: _Data, config: RunConfig, precision: Precision, facts: MachineFacts
) -> Duration:
    evaluation, grpo = config.evaluation, config.grpo
    n_passes = 2 + len(evaluation.ablations) + bool(config.warm_start.steps)
    if evaluation.judge_checkpoints:
        n_passes += (grpo.max_steps - 1) // config.training.save_steps
    n_answers = n_passes * len(data.split["judged"])
    n_answers += min(evaluation.n_train_clips, len(data.split["train"]))
    runs_dir = run_directory(config, "run").path.parent
    return predict_duration(runs_dir, config, precision, facts, n_answers)
