"""GRPO with TRL's trainer: our configuration in its terms, our records beside its loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from subtext.config import RunConfig
from subtext.errors import TrainingError
from subtext.policy.checkpoints import Checkpoint, newest_checkpoint
from subtext.policy.load import CHAT_TEMPLATE_OPTIONS, train_in_float32
from subtext.policy.precision import Precision
from subtext.policy.ranks import n_ranks
from subtext.policy.training_record import TrainingRecord, stopped_by_alarm
from subtext.policy.watched_reward import watched
from subtext.progress import Watcher
from subtext.rewards import RewardFn
from subtext.run_dir import RunDir
from subtext.signals import DeferredSignals

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedTokenizerBase
    from trl import GRPOConfig, GRPOTrainer

    from subtext.policy.callbacks import KeepLastStep

logger = logging.getLogger(__name__)


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
    reward: RewardFn,
    config: RunConfig,
    precision: Precision,
    run: RunDir,
    save_adapter: Callable[[], None],
    watcher: Watcher,
    record: TrainingRecord,
) -> dict[str, Any]:
    """Train `model`'s adapter in place, on from the newest checkpoint; return training.json.

    `rows` hold `prompt` (messages), `clip_id`, `gold` and `is_pivot`; `save_adapter` is called
    after every checkpoint and at the end. A signal that ends the process lets the optimiser's
    update finish and has the last finished step saved as a checkpoint, then its exception goes on.
    Raises TrainingError when something other than the adapter would train, or when training
    stopped before its last step; TrainingStoppedError when an alarm did that.
    """
    from datasets import Dataset
    from safetensors import SafetensorError
    from transformers import PrinterCallback
    from trl import GRPOTrainer

    from subtext.policy.alarm_watch import WatchAlarms
    from subtext.policy.callbacks import KeepLastStep, KeepRecords, TellWatcher

    checkpoint = newest_checkpoint(run)
    record.go_on_from(checkpoint.step if checkpoint else 0)
    signals = DeferredSignals()
    last_step = KeepLastStep(signals, checkpoint.step if checkpoint else 0)
    records = KeepRecords(run, save_adapter, record)
    alarms = WatchAlarms(run, config)
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=watched(reward),
        args=grpo_arguments(config, precision, run),
        train_dataset=Dataset.from_list(list(rows)),
        processing_class=tokenizer,
        callbacks=[TellWatcher(watcher, "grpo", "train"), alarms, records, last_step],
    )
    trainer.remove_callback(PrinterCallback)
    train_in_float32(trainer.model)
    _assert_only_adapter_trains(trainer.model)
    with signals:
        if n_ranks() > 1:
            signals.hold()
        try:
            _train(trainer, checkpoint)
        # torch's own, out of memory and lost numbers among them; and what a full disk raises
        except (RuntimeError, OSError, SafetensorError) as error:
            raise TrainingError(
                f"GRPO stopped after step {trainer.state.global_step}: {error}. If numbers were "
                "lost, lower grpo.learning_rate or warm_start.learning_rate; if memory ran out, "
                "lower training.per_device_train_batch_size or grpo.max_completion_length; if the "
                f"disk of {run.path} is full, make room. The same run goes on from its newest "
                "checkpoint."
            ) from error
        except Exception:
            raise
        except BaseException:  # a signal's: KeyboardInterrupt, SystemExit, Prefect's
            if not signals.held:  # else something cut an update or a save in two
                signals.hold()
                _save_last_step(trainer, last_step)
            raise
        signals.hold()
        if alarms.stopped:
            records.save(trainer.state)
            record.write(trainer.state.log_history, stopped=alarms.stopped)
            raise stopped_by_alarm(run, alarms.stopped)
        if trainer.state.global_step < config.grpo.max_steps:
            raise TrainingError(
                f"training ended after {trainer.state.global_step} of grpo.max_steps = "
                f"{config.grpo.max_steps} steps. Raise data.n_train_rows = {len(rows)}."
            )
        records.save(trainer.state)
        return record.write(trainer.state.log_history, finished=True)


def _train(trainer: GRPOTrainer, checkpoint: Checkpoint | None) -> None:
    """Take the steps that are left. From the last checkpoint, where none is, TRL would take one."""
    from transformers import TrainerState

    if checkpoint is None:
        trainer.train()
        return
    logger.info("going on from step %d of %d", checkpoint.step, trainer.args.max_steps)
    if checkpoint.step < trainer.args.max_steps:
        trainer.train(resume_from_checkpoint=str(checkpoint.path))
        return
    trainer._load_from_checkpoint(str(checkpoint.path))
    trainer.state = TrainerState.load_from_json(str(checkpoint.path / "trainer_state.json"))


def _save_last_step(trainer: GRPOTrainer, last_step: KeepLastStep) -> None:
    """Write what TRL would have written after the last finished step, where it did not."""
    step = trainer.state.global_step
    if step > last_step.saved_step:
        last_step.rewind(trainer.state)
        try:
            trainer._save_checkpoint(trainer.model, None)
            trainer.callback_handler.on_save(trainer.args, trainer.state, trainer.control)
        except (OSError, RuntimeError) as error:  # a full disk, also in torch's words
            logger.warning("interrupted after step %d, which could not be saved: %s", step, error)
            return
    logger.warning("interrupted; the same run goes on after step %d", last_step.saved_step)


def _assert_only_adapter_trains(model: Any) -> None:
    trainable = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    foreign = [name for name in trainable if "lora_" not in name]
    if not trainable or foreign:
        raise TrainingError(
            f"expected only LoRA weights to train, found {len(trainable)} trainable tensors, "
            f"of them not LoRA: {foreign[:3]}. Check lora.target_modules."
        )
