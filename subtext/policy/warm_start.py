"""A short supervised start: the adapter learns the answer grammar before it is rewarded for it.

Reinforcement sharpens what is already there; a model that never closes its tags earns nothing to
learn from. The teacher sees training clips only. It quotes cues that the prompt prints, and
names the clip's label, or with probability `label_noise` the other one.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subtext.answer import format_answer
from subtext.config import RunConfig
from subtext.policy.adapter_record import WEIGHTS
from subtext.policy.checkpoints import weights_fault
from subtext.policy.load import CHAT_TEMPLATE_OPTIONS, train_in_float32
from subtext.policy.precision import Precision
from subtext.policy.ranks import n_ranks
from subtext.progress import Watcher
from subtext.prosody.render import render_prosody_features

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

_OPENINGS = (
    "Taken by itself the line could be meant either way.",
    "The words alone do not settle it.",
    "On paper this reads plainly enough, so the delivery has to decide.",
    "The context sets the scene, but the voice has the last word.",
)
_BRIDGES = (
    "In the delivery I note",
    "What stands out is",
    "The voice gives",
    "Listening for cues:",
)
_VERDICTS = {
    "sarcastic": (
        "Together these suggest that the speaker means the opposite of the words.",
        "That sits badly with the words, so I hear irony.",
    ),
    "sincere": (
        "Together these suggest that the speaker means what is said.",
        "That fits the words, so I take them at face value.",
    ),
}
_CONFIDENCES = (0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)
_OTHER = {"sarcastic": "sincere", "sincere": "sarcastic"}


def teacher_answer(clip_id: str, prosody: dict[str, Any] | None, label: str, seed: int) -> str:
    """Return one answer for `label`, 20 to 40 words of reasoning; the same for the same seed."""
    rng = random.Random(f"{seed}:{clip_id}:{label}")
    cues = [line.strip() for line in render_prosody_features(clip_id, prosody).splitlines()]
    quoted = "; ".join(rng.sample(cues, min(2, len(cues))))
    reasoning = " ".join(
        [
            rng.choice(_OPENINGS),
            f"{rng.choice(_BRIDGES)} {quoted}.",
            rng.choice(_VERDICTS[label]),
        ]
    )
    return format_answer(reasoning, label, rng.choice(_CONFIDENCES))


def teacher_examples(
    rows: Sequence[dict[str, Any]], scenarios: dict[str, dict[str, Any]], config: RunConfig
) -> list[dict[str, Any]]:
    """Return `warm_start.n_examples` prompt-completion pairs, drawn from training rows in order."""
    warm = config.warm_start
    rng = random.Random(warm.seed)
    examples = []
    for index in range(warm.n_examples):
        row = rows[index % len(rows)]
        label = _OTHER[row["gold"]] if rng.random() < warm.label_noise else row["gold"]
        prosody = scenarios[row["clip_id"]]["prosody"]
        answer = teacher_answer(row["clip_id"], prosody, label, warm.seed + index)
        examples.append(
            {
                "prompt": row["prompt"],
                "completion": [{"role": "assistant", "content": answer}],
                "chat_template_kwargs": CHAT_TEMPLATE_OPTIONS,
            }
        )
    return examples


def load_warm_adapter(model: PeftModel, folder: Path) -> bool:
    """Give `model`'s adapter the weights of a warm start that ended; False where there is none."""
    import peft
    from safetensors.torch import load_file

    weights = folder / WEIGHTS
    if not weights.exists():
        return False
    if fault := weights_fault(weights):
        logger.warning("%s is not whole, so the warm start is repeated: %s", folder, fault)
        return False
    peft.set_peft_model_state_dict(model, load_file(weights))
    logger.info("warm start: taken from %s", folder)
    return True


def warm_start(
    model: PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Sequence[dict[str, Any]],
    config: RunConfig,
    precision: Precision,
    scratch: Path,
    watcher: Watcher,
) -> None:
    """Train `model`'s adapter in place on `examples`, with loss on the answers only."""
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import SFTConfig, SFTTrainer

    from subtext.policy.callbacks import TellWatcher

    warm = config.warm_start
    arguments = SFTConfig(
        output_dir=str(scratch),
        max_steps=warm.steps,
        per_device_train_batch_size=warm.batch_size // n_ranks(),
        learning_rate=warm.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=min(5, warm.steps // 5),
        max_length=config.model.max_context_tokens,
        completion_only_loss=True,
        gradient_checkpointing=config.training.gradient_checkpointing,
        bf16=precision.dtype == "bfloat16",
        fp16=precision.dtype == "float16",
        use_cpu=precision.device == "cpu",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=warm.seed,
    )
    trainer = SFTTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_list(list(examples)),
        processing_class=tokenizer,
        callbacks=[TellWatcher(watcher, "warm_start", "warm_start")],
    )
    trainer.remove_callback(PrinterCallback)
    train_in_float32(trainer.model)
    logger.info("warm start: %d steps on %d teacher answers", warm.steps, len(examples))
    trainer.train()
