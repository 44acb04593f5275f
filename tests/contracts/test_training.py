"""Training end to end, in seconds: TRL, peft and bitsandbytes at work on the tiny policy."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pytest
from safetensors.torch import load_file
from support.corpus import write_corpus

from subtext import strict_json
from subtext.errors import ConfigError, DataError, TrainingError, TrainingStoppedError
from subtext.policy.train import train_policy, training_rows
from subtext.prepare import prepare_run
from subtext.progress import Progress
from subtext.rewards import seed_reward
from subtext.run_dir import RunDir, load_config

WEIGHTS = "adapter_model.safetensors"
BATCH = 4

Prepare = Callable[..., RunDir]


def overrides(**sections: dict[str, Any]) -> dict[str, Any]:
    """The demo profile, shrunk; `sections` come on top, field by field."""
    small: dict[str, dict[str, Any]] = {
        "data": {"root": "corpus", "n_train_rows": 16},
        "lora": {"r": 4, "alpha": 8},
        "warm_start": {"steps": 2, "batch_size": 2, "n_examples": 8},
        "grpo": {"max_steps": 3, "num_generations": 2, "max_completion_length": 12},
        "training": {
            "per_device_train_batch_size": BATCH,
            "save_steps": 2,
            "lr_scheduler_type": "constant",
            "num_threads": 1,
        },
        "evaluation": {"n_eval_clips": 2},
    }
    return {
        name: {**small.get(name, {}), **sections.get(name, {})} for name in {**small, **sections}
    }


@pytest.fixture(scope="module")
def prepare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepare]:
    """Prepares a run of its own in a home that the module's runs share."""
    home = tmp_path_factory.mktemp("home")
    write_corpus(home / "corpus", n_clips=12)
    numbers = itertools.count()

    def prepared(**sections: dict[str, Any]) -> RunDir:
        run_id = f"run-{next(numbers)}"
        return prepare_run("demo", overrides(**sections), default_run_id=run_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBTEXT_HOME", str(home))
        patch.setenv("SUBTEXT_CACHE", str(home / "cache"))
        yield prepared


def uneven_reward(
    prompts: Any, completions: list[list[dict[str, str]]], **columns: Any
) -> list[float]:
    """The seed's reward, which is 0 for all that an untaught policy writes, and a bit a letter."""
    rewards = seed_reward(prompts, completions, **columns)
    letters = [sum(letter.isalpha() for letter in answer[0]["content"]) for answer in completions]
    return [reward + n / 100 for reward, n in zip(rewards, letters, strict=True)]


class Trained:
    """A run that was trained once for all tests of `TestWholeRun`."""

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self.told: list[Progress] = []
        self.summary = train_policy(run, self.told.append, reward=uneven_reward)
        self.history: list[dict[str, Any]] = strict_json.read(run.log_history)
        self.steps = [record for record in self.history if "reward" in record]


@pytest.fixture(scope="module")
def trained(prepare: Prepare) -> Trained:
    return Trained(prepare())


class TestWholeRun:
    def test_files(self, trained: Trained) -> None:
        names = {path.name for path in trained.run.path.iterdir()}
        assert names == {
            "adapter", "warm_adapter", "checkpoint-2", "checkpoint-3", "completions",
            "config.json", "split.json", "leak_report.json", "prosody_reference.json",
            "log_history.json", "trainer_state.json", "training.json", ".lock",
        }  # fmt: skip
        for adapter in (trained.run.adapter, trained.run.warm_adapter):
            assert {path.name for path in adapter.iterdir()} == {
                "adapter_config.json", WEIGHTS, "chat_template.jinja", "subtext.json",
                "tokenizer.json", "tokenizer_config.json",
            }  # fmt: skip

    def test_adapter_names_its_base_and_no_folder(self, trained: Trained) -> None:
        config = strict_json.read(trained.run.adapter / "adapter_config.json")
        assert config["base_model_name_or_path"] == "subtext-tiny"
        record = strict_json.read(trained.run.adapter / "subtext.json")
        assert (record["base"]["source"], len(record["base"]["sha256"])) == ("tiny", 64)
        assert (record["max_new_tokens"], record["prompt"]["speaker"]) == (12, "masked")
        home = str(trained.run.path.parents[1]).encode()
        for path in trained.run.adapter.iterdir():
            assert home not in path.read_bytes(), path.name

    def test_only_low_rank_weights_are_saved_and_both_stages_moved_them(
        self, trained: Trained
    ) -> None:
        warm = load_file(trained.run.warm_adapter / WEIGHTS)
        final = load_file(trained.run.adapter / WEIGHTS)
        assert warm.keys() == final.keys()
        assert all("lora_" in name for name in final)
        # B starts at zero, so what it holds was learnt.
        learnt = [name for name in warm if "lora_B" in name]
        assert len(learnt) == 3 * 7
        assert all(abs(warm[name]).max() > 0 for name in learnt)
        assert all(abs(final[name] - warm[name]).max() > 0 for name in learnt)

    def test_reward_parts_and_accuracy_stand_beside_the_reward(self, trained: Trained) -> None:
        assert [record["step"] for record in trained.steps] == [1, 2, 3]
        for record in trained.steps:
            assert record["reward"] > 0
            assert record["grad_norm"] > 0
            for name in ("correctness", "reasoning_length", "format"):
                assert record[f"reward_parts/{name}"] == 0
            assert (record["accuracy"], record["well_formed"]) == (0, 0)

    def test_trainer_state_is_whole_and_strict(self, trained: Trained) -> None:
        state = strict_json.read(trained.run.trainer_state)
        assert (state["global_step"], state["max_steps"]) == (3, 3)
        assert state["log_history"] == trained.history

    def test_completions_of_every_step(self, trained: Trained) -> None:
        files = sorted(trained.run.completions.iterdir())
        assert [path.name for path in files] == [f"completions_{n:05d}.parquet" for n in (1, 2, 3)]
        split = strict_json.read(trained.run.split)
        for path, record in zip(files, trained.steps, strict=True):
            table = pd.read_parquet(path)
            assert len(table) == BATCH
            assert {"prompt", "completion", "gold", "predicted", "correct"} <= set(table.columns)
            assert table["uneven_reward"].mean() == pytest.approx(record["reward"], abs=1e-6)
        assert split["train"]

    def test_watcher_is_told_every_step(self, trained: Trained) -> None:
        steps = [(p.stage, p.step, p.max_steps) for p in trained.told]
        assert set(steps[:3]) == {("warm_start", 1, 2), ("warm_start", 2, 2)}
        grpo = [p for p in trained.told if p.stage == "grpo"]
        rewards = [p.metrics["train/reward"] for p in grpo if "train/reward" in p.metrics]
        assert rewards == [record["reward"] for record in trained.steps]
        assert (grpo[-1].step, grpo[-1].max_steps) == (3, 3)

    def test_summary(self, trained: Trained) -> None:
        assert trained.summary["steps"] == 3
        assert trained.summary["first"] == {"reward": trained.steps[0]["reward"], "accuracy": 0.0}
        assert trained.summary["final"]["reward"] == trained.steps[2]["reward"]
        assert trained.summary["train_runtime_s"] > 0
        json.dumps(trained.summary, allow_nan=False)

    def test_same_seed_same_rewards_and_weights(self, trained: Trained, prepare: Prepare) -> None:
        again = Trained(prepare())
        measured = ("reward", "loss", "grad_norm", "entropy", "completions/mean_length")
        for first, second in zip(trained.steps, again.steps, strict=True):
            assert {name: first[name] for name in measured} == {
                name: second[name] for name in measured
            }
        for adapter in ("warm_adapter", "adapter"):
            weights = [(t.run.path / adapter / WEIGHTS).read_bytes() for t in (trained, again)]
            assert weights[0] == weights[1]

    def test_other_seed_other_completions(self, trained: Trained, prepare: Prepare) -> None:
        seeds = {"per_device_train_batch_size": BATCH, "num_threads": 1, "seed": 7}
        other = Trained(prepare(training=seeds, grpo={"max_steps": 1}))
        assert other.steps[0]["reward"] != trained.steps[0]["reward"]


class TestFailureOnTheWay:
    @pytest.mark.parametrize(
        ("n_before", "saved"),
        [pytest.param(2, True, id="after-save"), pytest.param(1, False, id="before-save")],
    )
    def test_records_of_the_steps_before_stay(
        self, prepare: Prepare, n_before: int, saved: bool
    ) -> None:
        run = prepare(warm_start={"steps": 0})
        calls = itertools.count()

        def failing(**columns: Any) -> list[float]:
            if next(calls) == n_before:
                raise OSError("the reward's disk is gone")
            return uneven_reward(**columns)

        with pytest.raises(TrainingError, match="disk is gone"):
            train_policy(run, reward=failing)
        history = strict_json.read(run.log_history)
        assert [record["step"] for record in history if "reward" in record] == [
            *range(1, n_before + 1)
        ]
        assert strict_json.read(run.trainer_state)["global_step"] == n_before
        assert len(list(run.completions.iterdir())) == n_before
        assert run.adapter.exists() == saved
        assert (run.path / "adapter" / "subtext.json").exists() == saved
        assert not run.warm_adapter.exists()


class TestQuantised:
    def test_nf4_trains_its_adapter_alone(self, prepare: Prepare) -> None:
        pytest.importorskip("bitsandbytes")
        run = prepare(model={"quantization": "nf4"}, grpo={"max_steps": 2})
        steps = Trained(run).steps
        assert all(record["grad_norm"] > 0 for record in steps)
        warm, final = (load_file(a / WEIGHTS) for a in (run.warm_adapter, run.adapter))
        assert all("lora_" in name for name in final)
        assert any(abs(final[name] - warm[name]).max() > 0 for name in final)
        assert strict_json.read(run.adapter / "subtext.json")["quantization"] == "nf4"

    def test_layers_of_the_base_are_four_bit_and_frozen(self, prepare: Prepare) -> None:
        bitsandbytes = pytest.importorskip("bitsandbytes")
        from subtext.policy.base_model import resolve_base
        from subtext.policy.load import add_adapter, load_base
        from subtext.policy.precision import choose_precision, machine_facts

        config = load_config(prepare(model={"quantization": "nf4"}))
        precision = choose_precision(machine_facts(), config.model)
        model = add_adapter(load_base(resolve_base(config.model), precision), config.lora, 0)
        layers = [m for m in model.modules() if isinstance(m, bitsandbytes.nn.Linear4bit)]
        assert len(layers) == 3 * 7
        assert {layer.weight.quant_type for layer in layers} == {"nf4"}
        assert all(layer.weight.quant_state.nested for layer in layers)
        trainable = [name for name, p in model.named_parameters() if p.requires_grad]
        assert trainable
        assert all("lora_" in name for name in trainable)


class TestRefusals:
    def test_held_out_clip_among_the_training_ids(self, prepare: Prepare) -> None:
        run = prepare()
        split = strict_json.read(run.split)
        leaked = split["held_out"][0]
        strict_json.write(run.split, {**split, "train": [*split["train"], leaked]})
        with pytest.raises(DataError, match=f"split.json: held_out.*with train.*{leaked}"):
            train_policy(run)
        assert not run.warm_adapter.exists()

    def test_training_rows_are_of_training_clips(self, prepare: Prepare) -> None:
        run = prepare(data={"n_train_rows": 40})
        split = strict_json.read(run.split)
        _, rows = training_rows(run, load_config(run))
        assert {row["clip_id"] for row in rows} == set(split["train"])
        assert len(rows) == 40

    def test_prompt_without_room_for_an_answer(self, prepare: Prepare) -> None:
        run = prepare(model={"max_context_tokens": 200}, warm_start={"steps": 0})
        with pytest.raises(ConfigError) as caught:
            train_policy(run)
        (problem,) = caught.value.problems
        assert (problem.field, problem.value) == ("model.max_context_tokens", 200)
        clip_ids = strict_json.read(run.split)["train"]
        assert any(f"clip {clip_id} has" in problem.problem for clip_id in clip_ids)
        needed = int(problem.remedy.split()[3])
        assert needed > 200
        room = prepare(model={"max_context_tokens": needed}, grpo={"max_steps": 1})
        assert train_policy(room)["steps"] == 1


def test_an_alarm_stops_training_where_asked(prepare: Prepare) -> None:
    run = prepare(warm_start={"steps": 0}, grpo={"max_steps": 30, "stop_on_alarm": True})
    with pytest.raises(TrainingStoppedError, match="missing_rewards"):
        train_policy(run, reward=lambda completions, **columns: [None] * len(completions))
    record = strict_json.read(run.training)
    assert record["stopped"] == {"alarm": "missing_rewards", "step": 1}
    assert not record["finished"]
    assert (run.adapter / WEIGHTS).exists()
    assert [alarm["name"] for alarm in strict_json.read(run.alarms)] == ["missing_rewards"]
    with pytest.raises(TrainingStoppedError, match="missing_rewards"):
        train_policy(run)
    assert not strict_json.read(run.training)["finished"], "a repeated start makes nothing good"


def test_a_disk_that_is_full_is_said_with_the_folder(prepare: Prepare, monkeypatch: Any) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    run = prepare(warm_start={"steps": 0})
    monkeypatch.setattr("torch.save", full)
    with pytest.raises(TrainingError, match=f"No space left.*disk of {run.path} is full"):
        train_policy(run, reward=uneven_reward)
