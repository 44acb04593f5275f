"""The flow's first task refuses what Prefect's schema can't see, with field, value and remedy."""

import json
import sys

import pytest
from support.corpus import write_corpus

pytestmark = pytest.mark.slow

CASES = {
    "generations": {"grpo": {"num_generations": 3}},
    "no-token": {"publish": {"adapter_repo": "me/judge"}},
    "no-gpu": {"model": {"device": "cuda"}},
    "no-data": {"data": {"root": "no-such-folder"}},
}
RUN_ALL = """
import json, sys
from flows.train_flow import train_flow
cases = json.loads(sys.argv[1])
print(json.dumps({
    name: train_flow("cpu", overrides, return_state=True).message
    for name, overrides in cases.items()
}))
"""


def test_first_task_says_field_value_and_remedy(server, tmp_path):
    write_corpus(tmp_path / "data" / "mustard")
    env = {"SUBTEXT_HOME": str(tmp_path), "CUDA_VISIBLE_DEVICES": "", "HF_TOKEN": ""}
    result = server.run([sys.executable, "-c", RUN_ALL, json.dumps(CASES)], env, 120)
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout.splitlines()[-1])
    assert "grpo.num_generations = 3" in said["generations"]
    assert "Set training.gradient_accumulation_steps" in said["generations"]
    assert "HF_TOKEN" in said["no-token"]
    assert "me/judge" in said["no-token"]
    assert "model.device = 'cuda'" in said["no-gpu"]
    assert "no-such-folder" in said["no-data"]
    assert not (tmp_path / "runs").exists(), "a refused run leaves nothing behind"
    assert not (tmp_path / "mlflow.db").exists()
