"""The registered version as its users meet it: MLflow's pyfunc, plain peft, a bare process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from support.tiny_policy import build_tiny_policy

from subtext import strict_json, tracking
from subtext.config import ModelConfig, PromptConfig
from subtext.data.masking import Cast
from subtext.errors import DataError
from subtext.judge import Judge, clip_problems
from subtext.profiles import resolve
from subtext.prosody.reference import PUBLISHED
from subtext.prosody.schema import record_problems
from subtext.run_dir import RunDir

URI = "models:/tiny@challenger"
ANSWERS = (
    {"label": "sarcastic", "confidence": 0.8, "reasoning": "too cheerful", "well_formed": True},
    {"label": None, "confidence": 0.5, "reasoning": None, "well_formed": False},
)
PROSODY = {
    "duration_s": 1.5, "f0_median_hz": 180.0, "f0_sd_st": None, "f0_range_st": 6.0,
    "voiced_fraction": 0.5, "intensity_sd_db": 4.0, "hnr_mean_db": 9.0, "pause_count": 0,
    "pause_longest_s": 0, "contour_st": [0.5, None, 1.0, 0.0, -1.0, -0.5, 0.0, None],
}  # fmt: skip


PROSODY_NAN = {**PROSODY, "hnr_mean_db": float("nan")}


class StubJudge:
    """Answers in turn from `ANSWERS` and keeps the clips it was asked about."""

    def __init__(self) -> None:
        self.clips: list[Mapping[str, Any]] = []

    def judge(self, clips: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        self.clips += clips
        return [dict(ANSWERS[index % 2]) for index in range(len(clips))]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunDir]:
    """A registered version around a real adapter on a tiny base, random and so never right."""
    home = tmp_path_factory.mktemp("registered judge")
    (home / "clips").mkdir()
    base_folder = build_tiny_policy(home / "tiny-base")
    overrides = {
        "data": {"root": "clips"},
        "model": {"source": "path", "name": str(base_folder), "quantization": "none"},
        "grpo": {"max_completion_length": 8},
        "tracking": {"registered_model": "tiny"},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBTEXT_HOME", str(home))
        patch.setenv("SUBTEXT_BASE_MODEL", str(base_folder))
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/mlflow.db")
        patch.chdir(home)
        run = RunDir(home / "runs" / "tiny-run").create()
        config = resolve("cpu", overrides)
        strict_json.write(run.config, {"profile": "cpu", "config": config.model_dump(mode="json")})
        split = {"train": ["1_1"], "held_out": ["2_1"], "judged": ["2_1"], "data_digest": "d" * 64}
        strict_json.write(run.split, split)
        save_untrained_adapter(run, config.model, overrides)
        tracking.start_run(run, "flow-1", "calm-otter")
        tracking.register_version(run)
        yield run


def save_untrained_adapter(run: RunDir, model: ModelConfig, overrides: dict[str, Any]) -> None:
    from subtext.data.masking import Cast
    from subtext.policy.base_model import resolve_base
    from subtext.policy.load import add_adapter, load_base, load_tokenizer, save_adapter
    from subtext.policy.precision import choose_precision, machine_facts

    config = resolve("cpu", overrides)
    base = resolve_base(model)
    precision = choose_precision(machine_facts(), model)
    policy = add_adapter(load_base(base, precision), config.lora, seed=0)
    tokenizer = load_tokenizer(base)
    save_adapter(policy, tokenizer, base, precision, Cast.of({}), PUBLISHED, config, run.adapter)


@pytest.fixture
def stub(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> StubJudge:
    judge = StubJudge()
    monkeypatch.setattr(Judge, "load", lambda adapter: judge)
    return judge


def clip(**fields: Any) -> dict[str, Any]:
    return {"utterance": "Great.", "context": ["It broke."], "context_speakers": ["A"], **fields}


class TestRealModel:
    def test_pyfunc_answers_as_the_judge_does(self, run: RunDir) -> None:
        table = pd.DataFrame(
            [
                clip(speaker="B", clip_id="1_1", prosody=None),
                clip(speaker=None, clip_id=None, context=[], context_speakers=[]),
            ],
            index=[7, 3],
        )
        result = mlflow.pyfunc.load_model(URI).predict(table)
        assert list(result.columns) == ["label", "confidence", "reasoning", "well_formed"]
        assert list(result.index) == [7, 3]
        expected = Judge.load(run.adapter).judge(
            [clip(speaker="B"), {"utterance": "Great.", "context": []}]
        )
        assert result.to_dict(orient="records") == expected
        # a random model writes no answer: the missing label must not become NaN
        assert result["label"].tolist() == [None, None]

    def test_input_example_of_the_version_is_judged(self, run: RunDir) -> None:
        model = mlflow.pyfunc.load_model(URI)
        example = model.input_example
        assert list(record_problems("example", example["prosody"][0])) == []
        assert len(model.predict(example)) == 1
        refused = example["prosody"][0] | {"f0_sd_st": "wide"}
        with pytest.raises(DataError, match="f0_sd_st"):
            model.predict(example.assign(prosody=[refused]))

    def test_plain_peft_loads_the_adapter_inside(self, run: RunDir, tmp_path: Path) -> None:
        from peft import PeftModel
        from transformers import AutoModelForCausalLM, AutoTokenizer

        folder = Path(mlflow.artifacts.download_artifacts(URI, dst_path=str(tmp_path)))
        adapter = folder / "artifacts" / "adapter"
        base = AutoModelForCausalLM.from_pretrained(os.environ["SUBTEXT_BASE_MODEL"])
        policy = PeftModel.from_pretrained(base, adapter)
        assert any("lora_A" in name for name in policy.state_dict())
        assert AutoTokenizer.from_pretrained(adapter).chat_template
        weights = "adapter_model.safetensors"
        assert (adapter / weights).read_bytes() == (run.adapter / weights).read_bytes()

    def test_no_folder_of_this_machine_beside_the_code(self, run: RunDir, tmp_path: Path) -> None:
        folder = Path(mlflow.artifacts.download_artifacts(URI, dst_path=str(tmp_path)))
        files = [path for path in folder.rglob("*") if path.is_file()]
        outside = [path for path in files if "code" not in path.relative_to(folder).parts]
        leaks = [path for path in outside if b"/tmp/" in path.read_bytes()]
        assert len(outside) > 8
        assert leaks == []

    def test_process_without_subtext_judges_with_the_code_inside(
        self, run: RunDir, tmp_path: Path
    ) -> None:
        program = (
            "import json, sys, mlflow, pandas as pd\n"
            "assert 'subtext' not in sys.modules\n"
            f"model = mlflow.pyfunc.load_model({URI!r})\n"
            "result = model.predict(pd.DataFrame([{'utterance': 'Great.'}]))\n"
            "import subtext\n"
            "print(json.dumps([subtext.__file__, result['label'].tolist()]))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        origin, labels = json.loads(done.stdout.splitlines()[-1])
        assert Path(origin).parts[-3:-1] == ("code", "subtext")
        assert labels == [None]


class TestClips:
    @pytest.mark.parametrize(
        ("clip", "fields"),
        [
            pytest.param("Great.", ["clip"], id="text"),
            pytest.param({}, ["utterance"], id="empty"),
            pytest.param(clip(utterance=" \n"), ["utterance"], id="blank"),
            pytest.param(clip(utterance=3), ["utterance"], id="number"),
            pytest.param(clip(speaker=3, clip_id=7), ["speaker", "clip_id"], id="ids"),
            pytest.param(clip(context="It broke."), ["context"], id="context-is-text"),
            pytest.param(clip(context=["a", None]), ["context"], id="line-is-null"),
            pytest.param(clip(context_speakers="A"), ["context_speakers"], id="speakers-are-text"),
            pytest.param(clip(context_speakers=["A", "B"]), ["context_speakers"], id="lengths"),
            pytest.param(clip(context=None), ["context_speakers"], id="speakers-without-lines"),
            pytest.param(clip(prosody="flat"), ["prosody"], id="prosody-is-text"),
            pytest.param(clip(prosody={**PROSODY, "pitch": 1}), ["pitch"], id="prosody-field"),
            pytest.param(clip(prosody=PROSODY_NAN), ["hnr_mean_db"], id="prosody-nan"),
            pytest.param(clip(utterance="Great\ud800"), ["utterance"], id="half-a-pair-in-line"),
            pytest.param(clip(context=["\udfff"]), ["context"], id="half-a-pair-in-context"),
            pytest.param(
                clip(speaker="\ud800", clip_id="\udc00", context_speakers=["\ud800"]),
                ["speaker", "clip_id", "context_speakers"],
                id="half-a-pair-in-a-name",
            ),
            pytest.param(
                clip(utterance="", speaker=1, context="x"), ["utterance", "speaker", "context"],
                id="everything-at-once",
            ),
        ],
    )  # fmt: skip
    def test_what_cannot_be_judged_is_named(self, clip: Any, fields: list[str]) -> None:
        problems = clip_problems("clip 0", clip)
        assert [problem.field for problem in problems] == fields
        assert all(problem.where.startswith("clip 0") and problem.remedy for problem in problems)

    @pytest.mark.parametrize(
        "clip",
        [
            pytest.param({"utterance": "Great."}, id="utterance-alone"),
            pytest.param(
                dict.fromkeys(("speaker", "clip_id", "context", "context_speakers", "prosody"))
                | {"utterance": "Great."},
                id="the-rest-null",
            ),
            pytest.param(clip(context=("It broke.",), context_speakers=("A",)), id="tuples"),
            pytest.param(clip(context_speakers=[]), id="no-speakers"),
            pytest.param(clip(utterance="Great \N{GRINNING FACE}"), id="whole-pair"),
            pytest.param(clip(prosody=PROSODY), id="prosody"),
        ],
    )
    def test_what_can_be_judged_passes(self, clip: dict[str, Any]) -> None:
        assert clip_problems("clip 0", clip) == []

    def test_judge_names_every_bad_clip_before_it_judges(self) -> None:
        judge = Judge(None, None, PromptConfig(), Cast.of({}), PUBLISHED, 8)
        with pytest.raises(DataError) as caught:
            judge.judge([clip(), clip(utterance=""), clip(context="x")], batch_size=0)
        found = [(problem.where, problem.field) for problem in caught.value.problems]
        assert found == [
            ("clip 1", "utterance"), ("clip 2", "context"), ("judge", "batch_size"),
        ]  # fmt: skip


class TestTable:
    @pytest.mark.parametrize(
        ("row", "seen"),
        [
            pytest.param({"utterance": "Great."}, {}, id="utterance-alone"),
            pytest.param(clip(prosody=PROSODY), clip(prosody=PROSODY), id="prosody-as-dict"),
            pytest.param(clip(prosody=None), clip(), id="prosody-null"),
            pytest.param(clip(prosody=float("nan")), clip(), id="prosody-nan"),
            pytest.param(
                clip(speaker="B", clip_id="1_1"), clip(speaker="B", clip_id="1_1"), id="ids"
            ),
            pytest.param(clip(speaker=None), clip(), id="speaker-null"),
            pytest.param(
                clip(context=np.array(["It broke."]), context_speakers=np.array(["A"])),
                clip(),
                id="lists-as-arrays",
            ),
            pytest.param(clip(gold="sincere"), clip(), id="other-columns-are-not-passed-on"),
        ],
    )
    def test_rows_reach_the_judge(
        self, stub: StubJudge, row: dict[str, Any], seen: dict[str, Any]
    ) -> None:
        mlflow.pyfunc.load_model(URI).predict(pd.DataFrame([row]))
        assert stub.clips == [{"utterance": "Great.", **seen}]

    def test_rows_with_and_without_optional_values(self, stub: StubJudge) -> None:
        rows = [clip(speaker="B", prosody=PROSODY), {"utterance": "Fine."}]
        mlflow.pyfunc.load_model(URI).predict(pd.DataFrame(rows))
        assert stub.clips == rows

    def test_missing_label_stays_none(self, stub: StubJudge) -> None:
        result = mlflow.pyfunc.load_model(URI).predict(pd.DataFrame([clip(), clip(), clip()]))
        assert result["label"].tolist() == ["sarcastic", None, "sarcastic"]
        assert result["reasoning"].tolist() == ["too cheerful", None, "too cheerful"]
        assert result["confidence"].tolist() == [0.8, 0.5, 0.8]
        assert result["well_formed"].tolist() == [True, False, True]

    def test_no_rows(self, stub: StubJudge) -> None:
        result = mlflow.pyfunc.load_model(URI).predict(pd.DataFrame([clip()]).iloc[:0])
        assert list(result.columns) == ["label", "confidence", "reasoning", "well_formed"]
        assert len(result) == 0

    def test_every_bad_row_is_named(self, stub: StubJudge) -> None:
        rows = [
            clip(),
            clip(utterance=" "),
            clip(utterance=None),
            clip(context_speakers=["A", "B"]),
            clip(context="It broke."),
            clip(context_speakers=[3]),
            clip(prosody="flat"),
            clip(prosody={**PROSODY, "pause_count": 1.5}),
        ]
        with pytest.raises(DataError) as caught:
            mlflow.pyfunc.load_model(URI).predict(pd.DataFrame(rows))
        found = [(problem.where, problem.field) for problem in caught.value.problems]
        assert found == [
            ("row 1", "utterance"),
            ("row 2", "utterance"),
            ("row 3", "context_speakers"),
            ("row 4", "context"),
            ("row 5", "context_speakers"),
            ("row 6", "prosody"),
            ("row 7, prosody", "pause_count"),
        ]
        assert stub.clips == []

    @pytest.mark.parametrize(
        "table",
        [
            pytest.param([{"context": ["It broke."]}], id="no-utterance"),
            pytest.param([{"utterance": 3}], id="utterance-is-a-number"),
        ],
    )
    def test_signature_refuses(self, stub: StubJudge, table: list[dict[str, Any]]) -> None:
        with pytest.raises(MlflowException, match=r"(?s)schema|type"):
            mlflow.pyfunc.load_model(URI).predict(pd.DataFrame(table))
