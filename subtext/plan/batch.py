"""What a step is made of: completions, prompts, and how far the training rows reach."""

from __future__ import annotations

from typing import Any

from subtext.config import RunConfig


def batch_arithmetic(config: RunConfig) -> dict[str, Any]:
    """Return the numbers of a step and of the run, and the same `in_words`.

    A batch of completions is generated once and trained on `grpo.num_iterations` times.
    """
    grpo, training = config.grpo, config.training
    completions, prompts = config.completions_per_step, int(config.prompts_per_step)
    batches = -(-grpo.max_steps // grpo.num_iterations)
    epochs = batches * prompts / config.data.n_train_rows
    processes = f" x {training.num_processes} processes" if training.num_processes > 1 else ""
    passes = f", each trained on {grpo.num_iterations} times" if grpo.num_iterations > 1 else ""
    return {
        "completions_a_step": completions,
        "prompts_a_step": prompts,
        "steps": grpo.max_steps,
        "completions": batches * completions,
        "epochs": round(epochs, 3),
        "in_words": (
            f"{_counted(training.per_device_train_batch_size, 'completion')} a forward pass x "
            f"{_counted(training.gradient_accumulation_steps, 'pass', 'passes')}{processes} = "
            f"{_counted(completions, 'completion')} a step, {grpo.num_generations} for each of "
            f"{_counted(prompts, 'prompt')}; "
            f"{grpo.max_steps} steps{passes} read {batches * prompts} of "
            f"{config.data.n_train_rows} rows ({epochs:.2f} epochs)"
        ),
    }


def _counted(n: int, one: str, many: str = "") -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"
