"""Every alarm, raised by a training that was planted to cause it: TRL at work on tiny policies.

A policy knows two kinds of answers to short prompts, a whole one with the right label and "No.", so
that a reward has something to prefer. The project's own reward raises nothing.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.tiny_policy import build_tiny_policy, pretrain

from subtext import strict_json
from subtext.answer import format_answer
from subtext.evaluation.alarms import LOOPING, MISSING, SAME_TEXT, training_alarms
from subtext.policy.alarm_watch import WatchAlarms
from subtext.policy.watched_reward import loops, same_text_ratio, watched
from subtext.profiles import resolve
from subtext.rewards import RewardFn, reward_decomposition, seed_reward
from subtext.run_dir import RunDir

pytestmark = pytest.mark.slow

WINDOW = 10
"""Steps; there are eight groups in each."""
LONGEST = 40
SHORT = "No."
CONFIDENCES = (0.6, 0.75, 0.9)
ROWS = [
    {
        "prompt": [{"role": "user", "content": f"Clip {number}."}],
        "clip_id": str(number),
        "gold": ("sarcastic", "sincere")[number % 2],
        "is_pivot": False,
    }
    for number in range(16)
]

Completions = Sequence[Sequence[dict[str, str]]]


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Policies that mostly answer whole, mostly in short, and in circles."""
    home = tmp_path_factory.mktemp("bases")
    for name, answers in {
        "whole": mixed(0.9, "I take it as {}."),
        "short": mixed(0.03, "I take it as {}, and I would take it so again, on any other day."),
        "circles": [(row, "so and " * 10) for row in ROWS],
    }.items():
        examples = [
            {"prompt": row["prompt"], "completion": [{"role": "assistant", "content": text}]}
            for row, text in answers
        ]
        pretrain(build_tiny_policy(home / name), examples, steps=60)
    return home


def mixed(whole: float, reasoning: str) -> list[tuple[dict[str, Any], str]]:
    """Rows with answers, of which the share `whole` has a final block and the others are "No."."""
    rng = random.Random(0)
    return [
        (
            row,
            format_answer(reasoning.format(row["gold"]), row["gold"], rng.choice(CONFIDENCES))
            if rng.random() < whole
            else SHORT,
        )
        for row in ROWS * 16
    ]


class Trained:
    """A run that was trained, with the watch over it, as `subtext.policy.grpo` sets it up."""

    def __init__(
        self, run: RunDir, base: Path, reward: RewardFn, resume: bool = False, **grpo: Any
    ) -> None:
        from datasets import Dataset
        from transformers import PrinterCallback
        from trl import GRPOTrainer

        from subtext.policy.base_model import resolve_base
        from subtext.policy.grpo import grpo_arguments
        from subtext.policy.load import add_adapter, load_base, load_tokenizer
        from subtext.policy.precision import choose_precision, machine_facts

        config = configuration(base, **grpo)
        model, precision = config.model, choose_precision(machine_facts("cpu"), config.model)
        watch = WatchAlarms(run, config)
        trainer = GRPOTrainer(
            model=add_adapter(load_base(resolve_base(model), precision), config.lora, 0),
            reward_funcs=watched(reward),
            args=grpo_arguments(config, precision, run),
            train_dataset=Dataset.from_list(ROWS * 4),
            processing_class=load_tokenizer(resolve_base(model)),
            callbacks=[watch],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train(resume_from_checkpoint=resume)
        self.history = trainer.state.log_history
        self.steps = [record for record in self.history if "reward" in record]
        self.stopped = watch.stopped
        self.recorded: list[dict[str, Any]] = run.read(run.alarms, [])
        self.first_seen = {alarm["name"]: alarm["step"] for alarm in self.recorded}
        self.at_the_end = [alarm["name"] for alarm in training_alarms(self.history, config.gate)]


def configuration(base: Path, **grpo: Any) -> Any:
    return resolve(
        "demo",
        {
            "model": {"source": "path", "name": str(base)},
            "lora": {"r": 16, "alpha": 32},
            "warm_start": {"steps": 0},
            "grpo": {
                "max_steps": WINDOW,
                "num_generations": 4,
                "max_completion_length": LONGEST,
                "learning_rate": 5e-4,
                "scale_rewards": "none",
                **grpo,
            },
            "training": {
                "per_device_train_batch_size": 32,
                "lr_scheduler_type": "constant",
                "save_steps": 100,
                "num_threads": 1,
            },
        },
    )


def constant(completions: Completions, **columns: Any) -> list[float]:
    return [0.7] * len(completions)


def length(completion_ids: Sequence[Sequence[int]], **columns: Any) -> list[float]:
    return [len(ids) / 100 for ids in completion_ids]


def brevity(**columns: Any) -> list[float]:
    return [-reward for reward in length(**columns)]


def first_token(completion_ids: Sequence[Sequence[int]], **columns: Any) -> list[float]:
    return [ids[0] % 7 / 7 for ids in completion_ids]


def all_but_right_answers(
    completions: Completions, gold: Sequence[str], **columns: Any
) -> list[float]:
    """Pays whatever does not name the right label, and logs the true accuracy as ours does."""
    seed_reward(completions=completions, gold=gold, **columns)
    texts = [completion[0]["content"] for completion in completions]
    return [
        1.0 - reward_decomposition(text, label)["_correct"]
        for text, label in zip(texts, gold, strict=True)
    ]


def seeds_but(missing: float | None, n: int) -> RewardFn:
    """The seed's reward, the first `n` of each step missing."""
    return lambda **columns: [missing] * n + seed_reward(**columns)[n:]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "run").create()


def test_a_healthy_training_raises_nothing(run: RunDir, bases: Path) -> None:
    trained = Trained(run, bases / "whole", seed_reward, max_steps=2 * WINDOW, stop_on_alarm=True)
    assert (trained.first_seen, trained.at_the_end, trained.stopped) == ({}, [], None)
    assert len(trained.steps) == 2 * WINDOW
    assert not run.alarms.exists()
    assert all(record[MISSING] == record[LOOPING] == 0 for record in trained.steps)
    assert trained.steps[-1]["reward"] > trained.steps[0]["reward"] + 0.1


@pytest.mark.parametrize(
    ("base", "reward", "grpo", "expected"),
    [
        pytest.param(
            "whole", seeds_but(None, 32), {"max_steps": 1}, {"missing_rewards": 1},
            id="every reward None",
        ),
        pytest.param(
            "whole", seeds_but(math.nan, 32), {"max_steps": 1}, {"missing_rewards": 1},
            id="every reward NaN",
        ),
        pytest.param(
            "whole", seeds_but(None, 1), {"max_steps": 1}, {"missing_rewards": 1},
            id="one reward of 32 None",
        ),
        pytest.param(
            "whole", seeds_but(math.inf, 1), {"max_steps": 1}, {"missing_rewards": 1},
            id="one reward of 32 infinite",
        ),
        pytest.param(
            "whole", first_token, {"max_completion_length": 2}, {"clipped_completions": WINDOW},
            id="no room for an answer",
        ),
        pytest.param(
            "whole", first_token,
            {"max_completion_length": 2, "mask_truncated_completions": True},
            {"clipped_completions": WINDOW, "no_gradient": WINDOW},
            id="no room, and what is cut is masked",
        ),
        pytest.param(
            "short", seed_reward, {"temperature": 0.01},
            {"no_learning_signal": WINDOW, "no_gradient": WINDOW, "repeated_answers": WINDOW},
            id="no temperature",
        ),
    ],
)  # fmt: skip
def test_seen_as_soon_as_there_is_enough_to_see(
    run: RunDir, bases: Path, base: str, reward: RewardFn, grpo: dict[str, Any],
    expected: dict[str, int],
) -> None:  # fmt: skip
    trained = Trained(run, bases / base, reward, **grpo)
    assert trained.first_seen == expected
    assert set(trained.at_the_end) >= expected.keys()
    assert trained.stopped is None
    assert len(trained.steps) == grpo.get("max_steps", WINDOW)


@pytest.mark.parametrize(
    ("base", "reward", "grpo", "expected"),
    [
        pytest.param(
            "circles", seed_reward, {"max_completion_length": 16}, "looping_answers",
            id="policy that loops",
        ),
        pytest.param(
            "whole", brevity, {"max_steps": 34, "learning_rate": 3e-4}, "collapsed_length",
            id="brevity is paid",
        ),
        pytest.param(
            "short", length, {"max_steps": 38, "max_completion_length": 60}, "grown_length",
            id="length is paid",
        ),
        pytest.param(
            "whole", all_but_right_answers, {"max_steps": 24}, "reward_without_accuracy",
            id="right answers are not paid",
        ),
    ],
)  # fmt: skip
def test_seen_among_others(
    run: RunDir, bases: Path, base: str, reward: RewardFn, grpo: dict[str, Any], expected: str
) -> None:
    trained = Trained(run, bases / base, reward, **grpo)
    assert expected in trained.first_seen
    assert expected in trained.at_the_end


def test_a_constant_reward_stops_training_where_asked_and_again_when_resumed(
    run: RunDir, bases: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="subtext.policy.alarm_watch")
    settings = {"max_steps": 2 * WINDOW, "stop_on_alarm": True}
    trained = Trained(run, bases / "whole", constant, **settings)
    assert trained.stopped == {"alarm": "no_learning_signal", "step": WINDOW}
    assert trained.first_seen == {"no_learning_signal": WINDOW, "no_gradient": WINDOW}
    assert set(trained.at_the_end) == {"no_learning_signal", "no_gradient"}
    assert trained.steps[-1]["step"] == WINDOW
    assert list(run.checkpoints) == [WINDOW]
    assert warned(caplog) == [
        f"alarm at step {WINDOW}, {alarm['name']}: {alarm['message']}" for alarm in trained.recorded
    ]
    caplog.clear()

    resumed = Trained(run, bases / "whole", constant, resume=True, **settings)
    assert resumed.stopped == {"alarm": "no_learning_signal", "step": WINDOW + 1}
    assert resumed.recorded == trained.recorded
    assert warned(caplog) == []


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    name = WatchAlarms.__module__
    return [record.getMessage() for record in caplog.records if record.name == name]


def test_a_message_says_what_was_seen_over_what_and_what_to_do(run: RunDir, bases: Path) -> None:
    (alarm,) = Trained(run, bases / "whole", seeds_but(None, 8), max_steps=2).recorded
    assert alarm == {
        "name": "missing_rewards",
        "step": 1,
        "message": "25.0 % of the rewards were None, NaN or infinite over the last 1 of 1 steps. "
        "Make the reward return a finite number for every completion.",
    }
    strict_json.loads(run.alarms.read_text(encoding="utf-8"))


# --- figures of a batch ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        pytest.param((), False, id="empty"),
        pytest.param((1, 2), False, id="shorter than a run"),
        pytest.param((1,) * 5, False, id="one of two runs is new"),
        pytest.param((1,) * 6, True, id="one of three runs is new"),
        pytest.param(tuple(range(50)), False, id="nothing twice"),
        pytest.param((*range(20), *range(20)), False, id="everything twice"),
        pytest.param((*range(20), *range(20), *range(20)), True, id="everything three times"),
    ],
)
def test_loops(completion: tuple[int, ...], expected: bool) -> None:
    assert loops(completion) == expected


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param([("p", (1,)), ("q", (2,))], 0, id="different texts"),
        pytest.param([("p", (1,)), ("p", (1,))], 0, id="one prompt"),
        pytest.param([("p", (1,)), ("q", (1,))], 1, id="one text for two prompts"),
        pytest.param(
            [("p", (1,)), ("p", (1,)), ("q", (1,)), ("q", (2,))], 0.75, id="the commonest counts"
        ),
    ],
)
def test_same_text_ratio(answers: list[tuple[str, tuple[int, ...]]], expected: float) -> None:
    assert same_text_ratio(answers) == expected


def test_texts_are_remembered_from_step_to_step_and_forgotten() -> None:
    """As with four completions of one prompt a step."""
    logged: dict[str, float] = {}
    reward = watched(lambda completions, **columns: [0.5] * len(completions))

    def step(prompt: str, token: int) -> float:
        reward(
            prompts=[prompt] * 4, completions=["?"] * 4, completion_ids=[[token]] * 4,
            log_metric=logged.__setitem__,
        )  # fmt: skip
        return logged[SAME_TEXT]

    assert step("p", 1) == 0
    assert step("q", 1) == 1
    assert [step(f"r{n}", 2 + n) for n in range(16)][-1] == 0


def test_the_reward_keeps_its_name() -> None:
    assert watched(seed_reward).__name__ == "seed_reward"
