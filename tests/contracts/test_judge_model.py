"""The registered version as its users meet it: MLflow's pyfunc, plain peft, a bare process."""

from __future__ import annotations

import hashlib
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
from safetensors.torch import load_file, save_file
from support.tiny_policy import build_tiny_policy

from subtext import strict_json, tracking
from subtext.config import ModelConfig, PromptConfig
from subtext.data.masking import Cast
from subtext.errors import DataError, MachineError
from subtext.judge import Judge, OtherBaseWarning
from subtext.judge_clips import clip_problems
from subtext.policy.adapter_record import read_adapter_record
from subtext.profiles import resolve
from subtext.prosody.measure import measure_clip
from subtext.prosody.reference import PUBLISHED
from subtext.prosody.schema import record_problems
from subtext.run_dir import RunDir

URI = "models:/tiny@challenger"
SOUND = next((Path(__file__).resolve().parents[2] / "data" / "demo" / "audio").glob("*.flac"))
ANSWERS = (
    {
        "label": "sarcastic", "confidence": 0.8, "p_sarcastic": 0.8, "reasoning": "too cheerful",
        "well_formed": True,
    },
    {
        "label": None, "confidence": 0.5, "p_sarcastic": 0.5, "reasoning": None,
        "well_formed": False,
    },
)  # fmt: skip
COLUMNS = ["label", "confidence", "p_sarcastic", "reasoning", "well_formed"]
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
        assert list(result.columns) == COLUMNS
        assert list(result.index) == [7, 3]
        expected = Judge.load(run.adapter).judge(
            [clip(speaker="B"), {"utterance": "Great.", "context": []}]
        )
        shown = [{name: judged[name] for name in COLUMNS} for judged in expected]
        assert result.to_dict(orient="records") == shown
        # a random model writes no answer: the missing label must not become NaN
        assert result["label"].tolist() == [None, None]

    def test_a_table_that_was_a_parquet_file_gets_the_same_answers(
        self, run: RunDir, tmp_path: Path
    ) -> None:
        judge = mlflow.pyfunc.load_model(URI)
        table = pd.DataFrame([clip(prosody=PROSODY), clip(speaker="B", prosody=None)])
        table.to_parquet(tmp_path / "clips.parquet")
        read = pd.read_parquet(tmp_path / "clips.parquet")
        assert isinstance(read["prosody"][0]["contour_st"], np.ndarray)
        answers = [judge.predict(each) for each in (table, read)]
        assert answers[0].equals(answers[1])

    def test_other_base_is_told_with_both_digests(
        self, run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = build_tiny_policy(tmp_path / "other")
        weights = load_file(other / "model.safetensors")
        changed = {name: weight * 1.01 for name, weight in weights.items()}
        save_file(changed, other / "model.safetensors", {"format": "pt"})
        monkeypatch.setenv("SUBTEXT_BASE_MODEL", str(other))
        with pytest.warns(OtherBaseWarning) as caught:
            model = mlflow.pyfunc.load_model(URI)
        digests = [
            read_adapter_record(run.adapter)["base"]["sha256"],
            hashlib.sha256((other / "model.safetensors").read_bytes()).hexdigest(),
        ]
        said = [str(item.message) for item in caught if item.category is OtherBaseWarning]
        assert [all(digest in text for digest in digests) for text in said] == [True]
        assert len(model.predict(pd.DataFrame([clip()]))) == 1

    def test_base_that_does_not_fit_and_no_base_are_refused(
        self, run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM

        other = build_tiny_policy(tmp_path / "smaller")
        small = AutoConfig.from_pretrained(other, hidden_size=64)
        AutoModelForCausalLM.from_config(small).save_pretrained(other)
        monkeypatch.setenv("SUBTEXT_BASE_MODEL", str(other))
        with pytest.raises(MachineError, match="does not fit"), pytest.warns(OtherBaseWarning):
            Judge.load(run.adapter)
        monkeypatch.delenv("SUBTEXT_BASE_MODEL")
        with pytest.raises(MachineError, match="Set SUBTEXT_BASE_MODEL"):
            Judge.load(run.adapter)

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
            pytest.param(clip(audio=7), ["audio"], id="audio-is-a-number"),
            pytest.param(
                clip(audio="a.wav", prosody=PROSODY), ["audio"], id="audio-beside-prosody"
            ),
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
                dict.fromkeys(
                    ("speaker", "clip_id", "context", "context_speakers", "prosody", "audio")
                )
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
        judge = Judge(None, None, PromptConfig(), Cast.of({}), PUBLISHED, 8, 4, "", "")
        with pytest.raises(DataError) as caught:
            judge.judge([clip(), clip(utterance=""), clip(context="x")])
        found = [(problem.where, problem.field) for problem in caught.value.problems]
        assert found == [("clip 1", "utterance"), ("clip 2", "context")]
        with pytest.raises(DataError, match="batch_size = 0"):
            judge.judge([clip()], batch_size=0)


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
            pytest.param(clip(speaker=pd.NaT, clip_id=pd.NA), clip(), id="not-a-time-nor-any"),
            pytest.param(
                clip(context=np.array(["It broke.", "Why?"]), context_speakers=["A", np.str_("B")]),
                {"context": ["It broke.", "Why?"], "context_speakers": ["A", "B"]},
                id="lists-of-numpy-text",
            ),
            pytest.param(
                clip(prosody={**PROSODY, "contour_st": tuple(PROSODY["contour_st"])}),
                clip(prosody=PROSODY),
                id="contour-as-tuple",
            ),
            pytest.param(
                clip(
                    prosody={
                        **PROSODY,
                        "pause_count": np.int64(0),
                        "duration_s": np.float32(1.5),
                        "f0_sd_st": np.float64("nan"),
                        "contour_st": np.array(PROSODY["contour_st"], dtype=float),
                        "quality": np.array(["little_voice"], dtype=object),
                        "n_syllables": None,
                        "pause_total_s": np.nan,
                    }
                ),
                clip(prosody={**PROSODY, "quality": ["little_voice"]}),
                id="prosody-in-numpy",
            ),
            pytest.param(clip(gold="sincere"), clip(), id="other-columns-are-not-passed-on"),
        ],
    )
    def test_rows_reach_the_judge(
        self, stub: StubJudge, row: dict[str, Any], seen: dict[str, Any]
    ) -> None:
        mlflow.pyfunc.load_model(URI).predict(pd.DataFrame([row]))
        assert stub.clips == [{"utterance": "Great.", **seen}]

    def test_null_where_a_number_must_be_is_refused(self, stub: StubJudge) -> None:
        table = pd.DataFrame([clip(prosody={**PROSODY, "duration_s": np.nan})])
        with pytest.raises(DataError, match="duration_s") as caught:
            mlflow.pyfunc.load_model(URI).predict(table)
        assert [problem.field for problem in caught.value.problems] == ["duration_s"]

    def test_a_parquet_file_reaches_the_judge_as_it_was(
        self, stub: StubJudge, tmp_path: Path
    ) -> None:
        heard = {**PROSODY, "pause_total_s": 0.5, "n_syllables": 4, "quality": ["little_voice"]}
        rows = [
            clip(clip_id="1_1", speaker="B", prosody=heard),
            clip(clip_id="1_2", prosody=PROSODY),
            {"utterance": "Fine.", "clip_id": "1_3"},
        ]
        pd.DataFrame(rows).to_parquet(tmp_path / "clips.parquet")
        table = pd.read_parquet(tmp_path / "clips.parquet")
        assert isinstance(table["prosody"][0]["contour_st"], np.ndarray)
        mlflow.pyfunc.load_model(URI).predict(table)
        assert stub.clips == rows

    @pytest.mark.parametrize("kind", [str, Path])
    def test_sound_reaches_the_judge_as_its_prosody(self, stub: StubJudge, kind: type) -> None:
        row = {"utterance": "Great.", "audio": kind(SOUND)}
        mlflow.pyfunc.load_model(URI).predict(pd.DataFrame([row, {"utterance": "Fine."}]))
        prosody = measure_clip(SOUND, "Great.")
        assert stub.clips == [{"utterance": "Great.", "prosody": prosody}, {"utterance": "Fine."}]

    def test_every_bad_sound_is_named(self, stub: StubJudge, tmp_path: Path) -> None:
        text = tmp_path / "text.wav"
        text.write_text("no sound")
        sounds = [str(SOUND), str(text), str(tmp_path / "none.wav")]
        with pytest.raises(DataError) as caught:
            mlflow.pyfunc.load_model(URI).predict(pd.DataFrame([clip(audio=at) for at in sounds]))
        assert [(problem.where, problem.value) for problem in caught.value.problems] == [
            ("row 1, audio", sounds[1]), ("row 2, audio", sounds[2]),
        ]  # fmt: skip
        assert stub.clips == []

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
        assert list(result.columns) == COLUMNS
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
