"""GRPO with TRL's trainer: our configuration in its terms, our records beside its loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from subtext.config import RunConfig
from subtext.errors import TrainingError
from subtext.policy.load import CHAT_TEMPLATE_OPTIONS, train_in_float32
from subtext.policy.precision import Precision
from subtext.progress import Watcher
from subtext.run_dir import RunDir

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedTokenizerBase
    from trl import GRPOConfig

RewardFunction = Callable[..., list[float]]


def grpo_arguments(config: RunConfig, precision: Precision, run: RunDir) -> GRPOConfig:
    """Translate. Fields whose defaults TRL has moved between releases are all given."""
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
        importance_sampling_level="token",
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
    after every checkpoint and at the end. Raises TrainingError when something other than the
    adapter would train, or when training stopped before its last step.
    """
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOTrainer

    from subtext.policy.callbacks import KeepRecords, TellWatcher, write_records

    trainer = GRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=grpo_arguments(config, precision, run),
        train_dataset=Dataset.from_list(list(rows)),
        processing_class=tokenizer,
        callbacks=[TellWatcher(watcher, "grpo", "train"), KeepRecords(run, save_adapter)],
    )
    trainer.remove_callback(PrinterCallback)
    train_in_float32(trainer.model)
    _assert_only_adapter_trains(trainer.model)
    try:
        trainer.train()
    except RuntimeError as error:  # torch's own, out of memory and lost numbers among them
        raise TrainingError(
            f"GRPO stopped after step {trainer.state.global_step}: {error}. If numbers were lost, "
            "lower grpo.learning_rate or warm_start.learning_rate; if memory ran out, lower "
            "training.per_device_train_batch_size or grpo.max_completion_length."
        ) from error
    if trainer.state.global_step < config.grpo.max_steps:
        raise TrainingError(
            f"training ended after {trainer.state.global_step} of grpo.max_steps = "
            f"{config.grpo.max_steps} steps. Raise data.n_train_rows = {len(rows)}."
        )
    save_adapter()
    write_records(run, trainer.state)
    return list(trainer.state.log_history)


def _assert_only_adapter_trains(model: Any) -> None:
    trainable = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    foreign = [name for name in trainable if "lora_" not in name]
    if not trainable or foreign:
        raise TrainingError(
            f"expected only LoRA weights to train, found {len(trainable)} trainable tensors, "
            f"of them not LoRA: {foreign[:3]}. Check lora.target_modules."
        )
