"""GRPO with TRL's trainer: our configuration in its terms, our records beside its loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from subtext.config import RunConfig
from subtext.errors import ConfigError, Problem, TrainingError
from subtext.policy.callbacks import KeepRecords, TellWatcher, write_records
from subtext.policy.load import CHAT_TEMPLATE_OPTIONS
from subtext.policy.precision import Precision
from subtext.progress import Watcher
from subtext.run_dir import RunDir

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedTokenizerBase
    from trl import GRPOConfig

logger = logging.getLogger(__name__)

RewardFunction = Callable[..., list[float]]


def grpo_arguments(config: RunConfig, precision: Precision, run: RunDir) -> GRPOConfig:
    """Translate. Every field that TRL has moved between releases is given, none left to default."""
    from trl import GRPOConfig

    grpo, training = config.grpo, config.training
    return GRPOConfig(
        output_dir=str(run.path),
        max_steps=grpo.max_steps,
        num_generations=grpo.num_generations,
        max_completion_length=grpo.max_completion_length,
        learning_rate=grpo.learning_rate,
        beta=grpo.beta,
        temperature=grpo.temperature,
        top_p=grpo.top_p,
        loss_type=grpo.loss_type,
        scale_rewards=grpo.scale_rewards,
        num_iterations=grpo.num_iterations,
        epsilon=grpo.epsilon,
        top_entropy_quantile=grpo.top_entropy_quantile,
        mask_truncated_completions=grpo.mask_truncated_completions,
        chat_template_kwargs=CHAT_TEMPLATE_OPTIONS,
        per_device_train_batch_size=training.per_device_train_batch_size,
        gradient_accumulation_steps=training.gradient_accumulation_steps,
        gradient_checkpointing=training.gradient_checkpointing,
        lr_scheduler_type=training.lr_scheduler_type,
        warmup_steps=training.warmup_steps,
        max_grad_norm=training.max_grad_norm,
        save_steps=training.save_steps,
        save_total_limit=training.save_total_limit,
        seed=training.seed,
        shuffle_dataset=True,
        bf16=precision.dtype == "bfloat16",
        fp16=precision.dtype == "float16",
        use_cpu=precision.device == "cpu",
        logging_steps=1,
        log_completions=True,
        num_completions_to_print=0,  # whole answers go to parquet, not to the terminal
        report_to="none",
        disable_tqdm=True,
    )


def run_grpo(
    model: PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[dict[str, Any]],
    reward: RewardFunction,
    config: RunConfig,
    precision: Precision,
    run: RunDir,
    save_adapter: Callable[[], None],
    watcher: Watcher,
) -> list[dict[str, Any]]:
    """Train `model`'s adapter in place and return the trainer's log history.

    `rows` hold `prompt` (messages), `clip_id`, `gold` and `is_pivot`; `save_adapter` is called
    after every checkpoint and at the end. Raises ConfigError when a prompt leaves no room for an
    answer, TrainingError when nothing but the adapter must train and something else does.
    """
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOTrainer

    check_prompt_lengths(tokenizer, rows, config)
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=grpo_arguments(config, precision, run),
        train_dataset=Dataset.from_list(list(rows)),
        processing_class=tokenizer,
        callbacks=[TellWatcher(watcher, "grpo", "train"), KeepRecords(run, save_adapter)],
    )
    trainer.remove_callback(PrinterCallback)
    _cast_adapter(trainer.model, precision)
    _assert_only_adapter_trains(trainer.model)
    trainer.train()
    save_adapter()
    write_records(run, trainer.state)
    return list(trainer.state.log_history)


def check_prompt_lengths(
    tokenizer: PreTrainedTokenizerBase, rows: Sequence[dict[str, Any]], config: RunConfig
) -> None:
    """Refuse a prompt that, with the longest answer, exceeds `model.max_context_tokens`.

    TRL never truncates a prompt, so an overlong one would only show as a crash or as noise.
    """
    room = config.model.max_context_tokens - config.grpo.max_completion_length
    prompts = {row["clip_id"]: row["prompt"] for row in rows}
    lengths = {
        clip_id: len(
            tokenizer.apply_chat_template(
                prompt, add_generation_prompt=True, return_dict=True, **CHAT_TEMPLATE_OPTIONS
            )["input_ids"]
        )
        for clip_id, prompt in prompts.items()
    }
    longest = max(lengths, key=lambda clip_id: lengths[clip_id])
    logger.info("longest prompt: %d tokens (clip %s)", lengths[longest], longest)
    too_long = [clip_id for clip_id, length in lengths.items() if length > room]
    if too_long:
        problem = Problem(
            "configuration", "model.max_context_tokens", config.model.max_context_tokens,
            f"is too small for {len(too_long)} of {len(lengths)} prompts: clip {longest} has "
            f"{lengths[longest]} tokens beside grpo.max_completion_length = "
            f"{config.grpo.max_completion_length}",
            f"Set it to {lengths[longest] + config.grpo.max_completion_length} or more, where "
            "the model can read that far.",
        )  # fmt: skip
        raise ConfigError("Configuration refused", [problem])


def _cast_adapter(model: Any, precision: Precision) -> None:
    """Give the adapter its chosen format: TRL casts a quantised model's to bf16 on every device,
    which fp16's gradient scaler can't handle (trl#4901)."""
    import torch

    dtype = getattr(torch, precision.adapter_dtype)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(dtype)


def _assert_only_adapter_trains(model: Any) -> None:
    trainable = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    foreign = [name for name in trainable if "lora_" not in name]
    if not trainable or foreign:
        raise TrainingError(
            f"expected only LoRA weights to train, found {len(trainable)} trainable tensors, "
            f"of them not LoRA: {foreign[:3]}. Check lora.target_modules."
        )
