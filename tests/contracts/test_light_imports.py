"""Looking at help, importing flows and checking a configuration load no heavy library."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {
    "av", "datasets", "huggingface_hub", "matplotlib", "mlflow", "pandas", "parselmouth", "peft",
    "scipy", "sklearn", "statsmodels", "torch", "transformers", "trl",
}  # fmt: skip
PREFECTS = {"prefect", "jinja2"}  # what importing a flow brings and nothing else may
LIGHT_MODULES = [
    "subtext.answer",
    "subtext.config",
    "subtext.cli.compare",
    "subtext.cli.main",
    "subtext.cli.plan",
    "subtext.data.dataset",
    "subtext.data.measure.corpus",
    "subtext.data.pivot.make",
    "subtext.data.scenarios",
    "subtext.data.sources.fetch",
    "subtext.data.splits",
    "subtext.data.validate",
    "subtext.evaluation.ablations",
    "subtext.evaluation.alarms",
    "subtext.evaluation.answer_cache",
    "subtext.evaluation.assess",
    "subtext.evaluation.baselines",
    "subtext.evaluation.behaviour",
    "subtext.evaluation.compare_runs",
    "subtext.evaluation.confidence",
    "subtext.evaluation.gate",
    "subtext.evaluation.generalisation",
    "subtext.evaluation.leaks",
    "subtext.evaluation.metrics",
    "subtext.evaluation.official_folds",
    "subtext.evaluation.passes",
    "subtext.evaluation.policy_digest",
    "subtext.evaluation.records",
    "subtext.evaluation.report.clips",
    "subtext.evaluation.report.drawings",
    "subtext.evaluation.report.page",
    "subtext.evaluation.report.plots",
    "subtext.evaluation.statistics",
    "subtext.evaluation.verdict",
    "subtext.fold_tables",
    "subtext.judge",
    "subtext.judge_clips",
    "subtext.markdown",
    "subtext.printable",
    "subtext.hf_jobs.archive",
    "subtext.hf_jobs.jobs",
    "subtext.hf_jobs.plan",
    "subtext.judge_adapter",
    "subtext.oracle",
    "subtext.plan.plan",
    "subtext.plan.tables",
    "subtext.policy.train",
    "subtext.policy.watched_reward",
    "subtext.prepare",
    "subtext.progress",
    "subtext.prompts",
    "subtext.prosody.features",
    "subtext.prosody.from_tracks",
    "subtext.prosody.measure",
    "subtext.prosody.plot",
    "subtext.prosody.render",
    "subtext.publishing.uploads",
    "subtext.result_tables",
    "subtext.rewards",
    "subtext.run_dir",
    "subtext.summary",
    "subtext.tracking",
]
FLOW_MODULES = [f"flows.{path.stem}" for path in sorted((ROOT / "flows").glob("*_flow.py"))]


def modules_after(code: str) -> set[str]:
    """Top-level modules loaded once `code` has run in a fresh interpreter."""
    script = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('\\nLOADED', *{n.partition('.')[0] for n in sys.modules}))\n"
        + code
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "\nLOADED " in result.stdout, result.stderr
    assert "Traceback" not in result.stderr, result.stderr
    return set(result.stdout.rpartition("\nLOADED ")[2].split())


def run_module(module: str, *arguments: str) -> str:
    return (
        f"sys.argv = {[module, *arguments]!r}\n"
        f"import runpy\nrunpy.run_module({module!r}, run_name='__main__')\n"
    )


def test_light_modules_load_nothing_heavy_and_no_prefect():
    loaded = modules_after("\n".join(f"import {name}" for name in LIGHT_MODULES))
    assert not loaded & (HEAVY | PREFECTS)


@pytest.mark.parametrize("module", FLOW_MODULES)
def test_importing_a_flow(module):
    loaded = modules_after(f"import {module}")
    assert "prefect" in loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize("module", FLOW_MODULES)
def test_help_of_a_flow(module):
    assert not modules_after(run_module(module, "--help")) & HEAVY


def test_help_of_the_console_script():
    code = "sys.argv = ['subtext', '--help']\nfrom subtext.cli.main import main\nmain()"
    assert not modules_after(code) & (HEAVY | PREFECTS)


def test_checking_a_configuration():
    loaded = modules_after(
        "from subtext.profiles import resolve\nresolve('t4', {'lora': {'r': 8}})"
    )
    assert not loaded & (HEAVY | PREFECTS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(
            ["--set", "grpo.max_stepz=3"],
            ["grpo.max_stepz = 3", "Did you mean grpo.max_steps?"],
            id="typo",
        ),
        pytest.param(
            ["--profile", "t5"], ["profile = 't5'", "Choose one of"], id="unknown-profile"
        ),
        pytest.param(
            ["--set", "grpo.num_generations=3"],
            ["grpo.num_generations = 3", "training.gradient_accumulation_steps"],
            id="generations-do-not-divide-batch",
        ),
        pytest.param(
            ["--set", "data.eval_ratio=1.5"],
            ["data.eval_ratio = 1.5", "Share of the clips held out"],
            id="ratio-over-one",
        ),
        pytest.param(
            ["--set", "publish.adapter_repo=me/judge"],
            ["HF_TOKEN", "me/judge", "may write"],
            id="publishing-without-token",
        ),
        pytest.param(["--set", "max_steps"], ["max_steps", "section.field=value"], id="no-section"),
        pytest.param(
            ["--profile", "demo", "--set", "data.root=/no/such/folder"],
            ["/no/such/folder"],
            id="no-data",
        ),
    ],
)
def test_bad_knob_is_refused_before_anything_heavy(arguments, said, tmp_path, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    assert_refused("flows.train_flow", arguments, said, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--profile", "t5"], ["profile = 't5'", "Choose one of"], id="profile"),
        pytest.param(
            ["--profile", "demo", "--set", "evaluation.n_eval_clips=-1"],
            ["evaluation.n_eval_clips = -1"],
            id="knob",
        ),
        pytest.param(
            ["--profile", "demo", "--model", "/no/such/adapter"],
            ["/no/such/adapter", "models:/subtext@challenger"],
            id="no-model",
        ),
        pytest.param(
            ["--protocol", "official-folds", "--profile", "demo", "--set", "data.fold=1"],
            ["data.fold = 1", "is set by the protocol"],
            id="fold-of-the-protocol",
        ),
        pytest.param(
            ["--protocol", "official-folds", "--profile", "demo"],
            ["official_folds.json", "is not there"],
            id="corpus-without-folds",
        ),
    ],
)
def test_bad_evaluation_is_refused_before_anything_heavy(arguments, said, tmp_path, monkeypatch):
    assert_refused("flows.evaluate_flow", arguments, said, tmp_path, monkeypatch)


def assert_refused(module, arguments, said, tmp_path, monkeypatch):
    """A message with what is `said` and code 2, before a heavy library or Prefect's server."""
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    script = "import sys\n" + run_module(module, *arguments)
    result = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", script],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    timings = [line for line in result.stderr.splitlines() if line.startswith("import time:")]
    message = "\n".join(line for line in result.stderr.splitlines() if line not in set(timings))
    assert result.returncode == 2, message
    assert all(text in message for text in said), message
    assert "Traceback" not in message
    assert not {line.rpartition("|")[2].strip() for line in timings} & HEAVY
    assert not list(tmp_path.glob("*.db")), "Prefect's server was started"


def test_profile_for_a_gpu_is_refused_on_a_cpu_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    result = subprocess.run(
        [
            sys.executable, "-m", "flows.train_flow", "--profile", "gpu",
            "--set", "data.root=data/demo",
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    assert "model.device" in result.stderr
    assert not list(tmp_path.glob("*.db")), "Prefect's server was started"
