"""Judging held-out clips: passes over the same clips, and what a crash leaves behind."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from support.corpus import write_corpus
from support.tiny_policy import build_tiny_policy, pretrain

from subtext import judge, strict_json
from subtext.answer import format_answer
from subtext.config import PromptConfig
from subtext.data.dataset import dataset_rows
from subtext.data.scenarios import load_run_scenarios, load_scenarios
from subtext.errors import EvaluationError, MachineError
from subtext.evaluation import held_out
from subtext.evaluation.generate import generate_answers
from subtext.evaluation.held_out import judge_held_out
from subtext.policy.train import train_policy
from subtext.prepare import prepare_run
from subtext.progress import Progress
from subtext.prompts import build_messages
from subtext.prosody.reference import PUBLISHED
from subtext.run_dir import RunDir, load_config

N_CLIPS = 7
BATCH = 3


def prepared_run(home: Path, warm_steps: int, run_id: str) -> RunDir:
    overrides = {
        "data": {"root": "corpus", "n_train_rows": 16, "eval_ratio": 0.5},
        "model": {"source": "path", "name": str(home / "base")},
        "lora": {"r": 4, "alpha": 4},
        "warm_start": {"steps": warm_steps, "batch_size": 2, "learning_rate": 1e-4},
        "grpo": {
            "max_steps": 1,
            "num_generations": 2,
            "max_completion_length": 40,
            "learning_rate": 1e-4,
        },
        "training": {"per_device_train_batch_size": 4, "num_threads": 1},
        "evaluation": {
            "n_eval_clips": N_CLIPS,
            "batch_size": BATCH,
            "ablations": [],
            "n_train_clips": 0,
            "judge_checkpoints": False,
        },
    }
    return prepare_run("demo", overrides, default_run_id=run_id)


def trained_run(home: Path, warm_steps: int) -> RunDir:
    """A short training on a base that has learnt, if roughly, to answer in the right form."""
    run = prepared_run(home, warm_steps, f"warm-{warm_steps}")
    train_policy(run)
    # A step without spread in its rewards trains nothing, and equal policies are asked once.
    weights = load_file(run.adapter / "adapter_model.safetensors")
    nudged = {name: weight * 1.001 for name, weight in weights.items()}
    save_file(nudged, run.adapter / "adapter_model.safetensors", {"format": "pt"})
    return run


def example(row: dict[str, Any]) -> dict[str, Any]:
    answer = format_answer("The voice says it.", row["gold"], 0.8)
    return {"prompt": row["prompt"], "completion": [{"role": "assistant", "content": answer}]}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("home")
    write_corpus(home / "corpus", n_clips=32)
    base = build_tiny_policy(home / "base")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBTEXT_HOME", str(home))
        patch.setenv("SUBTEXT_BASE_MODEL", str(base))
        # All clips: the tiny policy answers in form only where it knows the prompt by heart.
        scenarios = load_run_scenarios(prepared_run(home, 0, "scratch"))
        rows = dataset_rows(scenarios, 64, prompt=PromptConfig())
        pretrain(base, [example(row) for row in rows], steps=50)
        yield home


@pytest.fixture(scope="module")
def trained(home: Path) -> RunDir:
    return trained_run(home, warm_steps=2)


@pytest.fixture
def unjudged(trained: RunDir, tmp_path: Path) -> RunDir:
    """A copy of the trained run without judgements."""
    run = RunDir(tmp_path / "copy")
    shutil.copytree(trained.path, run.path)
    for path in (run.held_out_eval, run.metrics):
        path.unlink(missing_ok=True)
    shutil.rmtree(run.judgements, ignore_errors=True)
    return run


class Judged:
    """The trained run, judged once for all tests of `TestPasses`."""

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self.told: list[Progress] = []
        self.figures = judge_held_out(run, self.told.append)
        self.whole: dict[str, Any] = strict_json.read(run.held_out_eval)


@pytest.fixture(scope="module")
def judged(trained: RunDir) -> Judged:
    return Judged(trained)


class TestPasses:
    def test_all_three_judge_the_same_clips_in_the_splits_order(self, judged: Judged) -> None:
        clip_ids = strict_json.read(judged.run.split)["judged"]
        assert len(clip_ids) == N_CLIPS
        assert list(judged.whole["passes"]) == ["base", "trained", "warm"]  # sorted by strict JSON
        for summary in judged.whole["passes"].values():
            assert [record["clip_id"] for record in summary["results"]] == clip_ids
            assert summary["n_eval_clips"] == N_CLIPS

    def test_top_level_is_the_trained_pass(self, judged: Judged) -> None:
        whole = dict(judged.whole)
        assert whole == {**whole["passes"]["trained"], "passes": whole["passes"]}

    def test_returns_the_passes_without_records(self, judged: Judged) -> None:
        for name, summary in judged.whole["passes"].items():
            del summary["results"]
            assert strict_json.loads(strict_json.dumps(judged.figures[name])) == summary

    def test_every_record_is_on_disk(self, judged: Judged) -> None:
        files = sorted(judged.run.judgements.iterdir())
        assert [path.name for path in files] == ["base.jsonl", "trained.jsonl", "warm.jsonl"]
        metrics = strict_json.read(judged.run.held_out_eval)["passes"]
        for path in files:
            lines = [strict_json.loads(line) for line in path.read_text().splitlines()]
            results = metrics[path.stem]["results"]
            assert sorted(lines, key=lambda record: record["clip_id"]) == sorted(
                results, key=lambda record: record["clip_id"]
            )

    def test_watcher_is_told_every_batch(self, judged: Judged) -> None:
        assert [(p.stage, p.step, p.max_steps) for p in judged.told] == [
            (f"judge {name}", done, N_CLIPS)
            for name in ("base", "warm", "trained")
            for done in (3, 6, 7)
        ]


@pytest.mark.parametrize("changed", ["warm", "trained"])
def test_each_pass_answers_with_its_own_adapter(
    judged: Judged, unjudged: RunDir, changed: str
) -> None:
    folder = {"warm": unjudged.warm_adapter, "trained": unjudged.adapter}[changed]
    weights = load_file(folder / "adapter_model.safetensors")
    loud = {name: w * (3000 if "lora_B" in name else 1) for name, w in weights.items()}
    save_file(loud, folder / "adapter_model.safetensors", {"format": "pt"})
    judge_held_out(unjudged)
    after = strict_json.read(unjudged.held_out_eval)["passes"]
    before = strict_json.read(judged.run.held_out_eval)["passes"]
    assert {name for name in after if after[name] != before[name]} == {changed}


def test_without_warm_start_there_are_two_passes(home: Path, trained: RunDir) -> None:
    run = trained_run(home, warm_steps=0)
    assert list(judge_held_out(run)) == ["base", "trained"]
    assert not (run.judgements / "warm.jsonl").exists()


class TestReload:
    def test_judge_answers_as_the_trained_pass_did(self, judged: Judged) -> None:
        scenarios = load_scenarios(judged.run.path.parents[1] / "corpus")
        records = strict_json.read(judged.run.held_out_eval)["results"]
        clips = [scenarios[record["clip_id"]] for record in records]
        answers = judge.Judge.load(judged.run.adapter).judge(clips)
        keys = {"label": "predicted", "confidence": "confidence", "well_formed": "well_formed"}
        for answer, record in zip(answers, records, strict=True):
            assert {key: answer[key] for key in keys} == {
                key: record[other] for key, other in keys.items()
            }
        assert sum(answer["well_formed"] for answer in answers) >= N_CLIPS // 2
        assert any(answer["reasoning"] for answer in answers)

    def test_judge_reads_what_the_trained_pass_read(
        self, judged: Judged, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read: list[Any] = []

        def generate(model: Any, tokenizer: Any, conversations: Any, **options: Any) -> Any:
            read.extend(conversations)
            return generate_answers(model, tokenizer, conversations, **options)

        monkeypatch.setattr(judge, "generate_answers", generate)
        scenarios = load_scenarios(judged.run.path.parents[1] / "corpus")
        clip_ids = strict_json.read(judged.run.split)["judged"]
        judge.Judge.load(judged.run.adapter).judge([scenarios[clip_id] for clip_id in clip_ids])
        described, prompt = load_run_scenarios(judged.run), load_config(judged.run).prompt
        assert read == [build_messages(clip_id, described, prompt) for clip_id in clip_ids]
        published = PUBLISHED.described_clips(scenarios)
        assert read != [build_messages(clip_id, published, prompt) for clip_id in clip_ids]

    def test_another_base_is_told_of(
        self, judged: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SUBTEXT_BASE_MODEL", str(build_tiny_policy(tmp_path / "other")))
        with pytest.warns(judge.OtherBaseWarning):
            judge.Judge.load(judged.run.adapter)

    def test_no_base_folder_is_refused(
        self, judged: Judged, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("SUBTEXT_BASE_MODEL")
        with pytest.raises(MachineError, match="Set SUBTEXT_BASE_MODEL"):
            judge.Judge.load(judged.run.adapter)


KILLED = """
import os, signal, sys
from pathlib import Path
from subtext.evaluation.held_out import judge_held_out
from subtext.run_dir import RunDir

def watch(progress):
    if progress.stage == "judge warm" and progress.step > 3:
        os.kill(os.getpid(), signal.SIGKILL)

judge_held_out(RunDir(Path(sys.argv[1])), watch)
"""


class TestRestart:
    def test_a_killed_judging_goes_on_and_ends_in_the_same_file(
        self, judged: Judged, unjudged: RunDir, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, str(unjudged.path)],
            cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert not unjudged.held_out_eval.exists()
        calls = count_generations(monkeypatch)
        judge_held_out(unjudged)
        assert len(calls) == 4, "two batches of warm were kept, and all of base"
        assert unjudged.held_out_eval.read_bytes() == judged.run.held_out_eval.read_bytes()

    def test_a_judged_run_generates_nothing_again(
        self, judged: Judged, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = judged.run.held_out_eval.read_bytes()
        calls = count_generations(monkeypatch)
        judge_held_out(judged.run)
        assert not calls
        assert judged.run.held_out_eval.read_bytes() == before


def count_generations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by one at every call of `generate`."""
    load, calls = held_out.load_adapters, []

    def counting(*arguments: Any) -> Any:
        model = load(*arguments)
        generate = model.generate

        def counted(**inputs: Any) -> Any:
            calls.append(1)
            return generate(**inputs)

        model.generate = counted
        return model

    monkeypatch.setattr(held_out, "load_adapters", counting)
    return calls


class TestCrash:
    @pytest.mark.parametrize(
        ("at", "stopped", "finished"),
        [
            pytest.param(2, "base", {"base": 3}, id="second-batch"),
            pytest.param(8, "trained", {"base": 7, "warm": 7, "trained": 3}, id="last-pass"),
            pytest.param(1, "base", {"base": 0}, id="first-batch"),
        ],
    )
    def test_finished_records_stay_and_no_result_is_written(
        self,
        unjudged: RunDir,
        monkeypatch: pytest.MonkeyPatch,
        at: int,
        stopped: str,
        finished: dict[str, int],
    ) -> None:
        load = held_out.load_adapters

        def crashing(*arguments: Any) -> Any:
            model = load(*arguments)
            generate, calls = model.generate, []

            def out_of_memory(**inputs: Any) -> Any:
                calls.append(1)
                if len(calls) == at:
                    raise RuntimeError("CUDA out of memory")
                return generate(**inputs)

            model.generate = out_of_memory
            return model

        monkeypatch.setattr(held_out, "load_adapters", crashing)
        message = f"pass '{stopped}' stopped after {finished[stopped]} of {N_CLIPS} clips: CUDA"
        with pytest.raises(EvaluationError, match=message):
            judge_held_out(unjudged)
        kept = {
            path.stem: [json.loads(line)["clip_id"] for line in path.read_text().splitlines()]
            for path in unjudged.judgements.iterdir()
        }
        assert {name: len(set(ids)) for name, ids in kept.items()} == finished
        assert not unjudged.held_out_eval.exists()
        assert not unjudged.metrics.exists()

    def test_result_of_an_earlier_judging_does_not_survive_a_crash(
        self, unjudged: RunDir, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        strict_json.write(unjudged.held_out_eval, {"accuracy": 1.0})
        strict_json.write(unjudged.metrics, {"passes": {}})

        def broken(*arguments: Any, **options: Any) -> Any:
            raise RuntimeError("broken")
            yield

        monkeypatch.setattr(held_out, "generate_answers", broken)
        with pytest.raises(EvaluationError, match="stopped after 0"):
            judge_held_out(unjudged)
        assert not unjudged.held_out_eval.exists()
        assert not unjudged.metrics.exists()
