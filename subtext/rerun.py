"""What two starts of one run may differ in: where things are, what they cost, where they go, and
whether an alarm ends it. All else makes another run."""

from __future__ import annotations

from typing import Any

from subtext.config import PublishConfig, RunConfig

MAY_CHANGE = frozenset(
    {
        "data.root", "training.run_id", "training.runs_dir", "training.price_per_hour",
        "grpo.stop_on_alarm", *(f"publish.{name}" for name in PublishConfig.model_fields),
    }
)  # fmt: skip


def differences(before: RunConfig, now: RunConfig) -> dict[str, tuple[Any, Any]]:
    """The knobs, as `section.field`, that make two runs of `before` and `now`; with both values."""
    then, today = before.model_dump(mode="json"), now.model_dump(mode="json")
    return {
        f"{section}.{name}": (then[section][name], value)
        for section, fields in today.items()
        for name, value in fields.items()
        if then[section][name] != value and f"{section}.{name}" not in MAY_CHANGE
    }
