"""Nothing that comes with a model or a corpus is run, and no name in it leads out of a folder.

Models are planted as files that would write `ran` if any of their programs ran, and are loaded by a
process that watches itself (`support.witness`).
"""

from __future__ import annotations

import ast
import json
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from support.adapter_record import TINY_BASE, adapter_record
from support.corpus import write_corpus
from support.finished_run import finished_run
from support.hub import LocalHub
from support.registered_run import add_random_adapter, prepared_run

from subtext import strict_json
from subtext.config import ModelConfig, Overrides, PublishConfig, RunConfig
from subtext.data.folder import AUTHORS_FOLDS_FILE
from subtext.data.folds import read_folds
from subtext.data.scenarios import load_run_scenarios, load_scenarios
from subtext.data.sources.archive import extract_clips
from subtext.data.sources.hub_archive import Locked
from subtext.errors import ConfigError, DataError, MachineError, PublishError
from subtext.policy.adapter_record import AdapterRecord, require_safetensors
from subtext.policy.base_model import pinned, resolve_base
from subtext.policy.load import load_adapters
from subtext.prepare import run_directory
from subtext.profiles import resolve
from subtext.prosody.from_tracks import records_from_npz
from subtext.publishing.hub import publish_adapter
from subtext.run_dir import RunDir
from subtext.tracking.runs import plain_files

CHECKOUT = Path(__file__).resolve().parents[2]
RAN = "ran"
ESCAPE = "{{ ''.__class__.__mro__[1].__subclasses__() }}"


class Bomb:
    """Unpickled, it writes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.system, (f"touch '{self.target}'",)


def bomb(root: Path) -> bytes:
    return pickle.dumps({"weight": Bomb(root / RAN)})


def program(root: Path) -> str:
    return f"open({str(root / RAN)!r}, 'w').close()\n"


def change(path: Path, **values: Any) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | values))


# What is done to a whole model, and the words that refuse it; "loaded": it loads, nothing runs.
Plant = Callable[[Path, Path], object]


def pickle_alone(folder: Path, root: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(bomb(root))


def pickle_beside(folder: Path, root: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(bomb(root))


def pickle_by_index(folder: Path, root: Path) -> None:
    (folder / "model.safetensors").rename(folder / "decoy.safetensors")
    (folder / "pytorch_model.bin").write_bytes(bomb(root))
    index = {"metadata": {}, "weight_map": {"model.norm.weight": "pytorch_model.bin"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def weights_elsewhere(folder: Path, root: Path) -> None:
    (folder / "model.safetensors").rename(folder / "decoy.safetensors")
    index = {"metadata": {}, "weight_map": {"model.norm.weight": "../../x.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def code_of_a_known_kind(folder: Path, root: Path) -> None:
    (folder / "planted.py").write_text(program(root))
    change(folder / "config.json", auto_map={"AutoModelForCausalLM": "planted.Model"})


def code_of_an_unknown_kind(folder: Path, root: Path) -> None:
    (folder / "planted.py").write_text(program(root))
    change(
        folder / "config.json", model_type="planted",
        auto_map={"AutoConfig": "planted.Config", "AutoModelForCausalLM": "planted.Model"},
    )  # fmt: skip


def code_of_a_tokenizer(folder: Path, root: Path) -> None:
    (folder / "planted.py").write_text(program(root))
    change(
        folder / "tokenizer_config.json", tokenizer_class="Planted",
        auto_map={"AutoTokenizer": ["planted.Planted", None]},
    )  # fmt: skip


def kernels(folder: Path, root: Path) -> None:
    change(folder / "config.json", attn_implementation="planted/kernels")


def another_base(folder: Path, root: Path) -> None:
    shape = {"peft_type": "LORA", "base_model_name_or_path": "planted/base"}
    (folder / "adapter_config.json").write_text(json.dumps(shape))
    (folder / "adapter_model.bin").write_bytes(bomb(root))


def own_generate(folder: Path, root: Path) -> None:
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text(program(root))


def escaping_template(folder: Path, root: Path) -> None:
    (folder / "chat_template.jinja").write_text(ESCAPE)


BASES: dict[str, tuple[Plant, str]] = {
    "nothing planted": (lambda folder, root: None, "loaded"),
    "a pickle alone": (pickle_alone, "a pickle can run any program when it is read"),
    "a pickle beside": (pickle_beside, "loaded"),
    "a pickle by the index": (pickle_by_index, "are no safetensors files beside it"),
    "weights elsewhere": (weights_elsewhere, "are no safetensors files beside it"),
    "code, kind known": (code_of_a_known_kind, "(trust_remote_code), which is never done"),
    "code, kind unknown": (code_of_an_unknown_kind, "(trust_remote_code), which is never done"),
    "code of a tokenizer": (code_of_a_tokenizer, "(trust_remote_code), which is never done"),
    "kernels": (kernels, "asks for kernels from the Hub to be run"),
    "another base": (another_base, "makes it an adapter on another base"),
    "own generate": (own_generate, "loaded"),
    "a template that escapes": (escaping_template, "SecurityError"),
}


def adapter_pickle_alone(folder: Path, root: Path) -> None:
    (folder / "adapter_model.safetensors").unlink()
    (folder / "adapter_model.bin").write_bytes(bomb(root))


def adapter_pickle_beside(folder: Path, root: Path) -> None:
    (folder / "adapter_model.bin").write_bytes(bomb(root))
    (folder / "training_args.bin").write_bytes(bomb(root))
    (folder / "optimizer.pt").write_bytes(bomb(root))


def modules_by_name(folder: Path, root: Path) -> None:
    change(
        folder / "adapter_config.json", megatron_config={"x": 1}, megatron_core="planted.core",
        auto_mapping={"base_model_class": "Model", "parent_library": "planted"},
    )  # fmt: skip


def layers_by_expression(folder: Path, root: Path) -> None:
    change(folder / "adapter_config.json", target_modules="(a+)+$")


def another_kind(folder: Path, root: Path) -> None:
    change(folder / "adapter_config.json", peft_type="PREFIX_TUNING")


def code_beside_an_adapter(folder: Path, root: Path) -> None:
    code_of_a_tokenizer(folder, root)
    (folder / "chat_template.jinja").write_text(ESCAPE)


def moving_base(folder: Path, root: Path) -> None:
    base = {"source": "hub", "name": "team/tiny", "revision": "main", "sha256": ""}
    change(folder / "subtext.json", base=base)


def base_by_a_path(folder: Path, root: Path) -> None:
    base = {"source": "hub", "name": "../../x", "revision": "a" * 40, "sha256": ""}
    change(folder / "subtext.json", base=base)


ADAPTERS: dict[str, tuple[Plant, str]] = {
    "nothing planted": (lambda folder, root: None, "loaded"),
    "a pickle alone": (adapter_pickle_alone, "can run any program when it is read, so it never is"),
    "pickles beside": (adapter_pickle_beside, "loaded"),
    "modules by name": (modules_by_name, "is no LoRA as Subtext trains it: auto_mapping"),
    "layers by expression": (layers_by_expression, "is no LoRA as Subtext trains it: target_modul"),
    "another kind": (another_kind, "is no LoRA as Subtext trains it: peft_type"),
    "code of a tokenizer": (code_beside_an_adapter, "loaded"),
    "a base that moves": (moving_base, "base.revision"),
    "a base by a path": (base_by_a_path, "is named as no repository of the Hub is"),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("planted")


@pytest.fixture(scope="module")
def seen(home: Path, root: Path, running: LocalHub) -> dict[str, Any]:
    """What the witness saw of every case, `kind/name`; each has been planted below `root`."""
    from huggingface_hub import HfApi

    run = prepared_run(home, "whole")
    add_random_adapter(run, seed=1)
    api = HfApi(endpoint=running.url, token=running.token)
    cases: dict[str, list[str]] = {}
    for number, (name, (plant, _)) in enumerate(BASES.items()):
        folder = Path(shutil.copytree(home / "base", root / "bases" / str(number)))
        plant(folder, root)
        cases[f"base/{name}"] = ["base", str(folder)]
        repository = f"team/base-{number}"
        api.create_repo(repository)
        api.upload_folder(repo_id=repository, folder_path=folder)
        cases[f"hub/{name}"] = ["hub", repository]
    for number, (name, (plant, _)) in enumerate(ADAPTERS.items()):
        folder = Path(shutil.copytree(run.adapter, root / "adapters" / str(number)))
        plant(folder, root)
        cases[f"adapter/{name}"] = ["judge", str(folder)]
    cases["command/a pickle alone"] = [
        "command", "judge", "--line", "Oh, great.", "--model", cases["adapter/a pickle alone"][1],
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "support.witness", str(root)],
        input=json.dumps(cases),
        env={
            **os.environ, **running.environment, "HF_HOME": str(root / "hub"),
            "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'tests'}:{root / 'bases' / '5'}",
        },
        cwd=home, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["base", "hub"])
@pytest.mark.parametrize("name", BASES)
def test_no_program_of_a_base_runs(seen: dict[str, Any], root: Path, kind: str, name: str) -> None:
    case = seen[f"{kind}/{name}"]
    assert BASES[name][1] in case["said"]
    assert case["events"] == []
    assert not (root / RAN).exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ADAPTERS)
def test_no_program_of_an_adapter_runs(seen: dict[str, Any], root: Path, name: str) -> None:
    case = seen[f"adapter/{name}"]
    assert ADAPTERS[name][1] in case["said"]
    assert case["events"] == []
    assert not (root / RAN).exists()


@pytest.mark.slow
def test_the_command_refuses_as_the_library_does(seen: dict[str, Any]) -> None:
    case = seen["command/a pickle alone"]
    assert "DataError" in case["said"]
    assert "can run any program when it is read" in case["said"]
    assert case["events"] == []


def test_the_witness_sees_what_it_is_for(root: Path, tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text("import pickle\n")
    (tmp_path / "x.bin").write_bytes(bomb(tmp_path))
    script = (
        "import sys, pickle\nfrom pathlib import Path\nfrom support.witness import Witness\n"
        "witness = Witness(Path(sys.argv[1]))\nsys.addaudithook(witness)\n"
        "sys.path.insert(0, sys.argv[1])\nimport planted\n"
        "pickle.loads(Path(sys.argv[1], 'x.bin').read_bytes())\n"
        "print(*witness.taken(), sep='\\n')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT / "tests")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (tmp_path / RAN).exists()
    kinds = [line.split()[0] for line in done.stdout.splitlines()]
    assert {"import", "compile", "exec", "open", "pickle.find_class"} <= set(kinds)


def test_folds_in_a_pickle_that_is_a_program_are_refused(tmp_path: Path) -> None:
    (tmp_path / AUTHORS_FOLDS_FILE).write_bytes(bomb(tmp_path))
    with pytest.raises(DataError):
        read_folds(tmp_path, {"1_1": {}})
    assert not (tmp_path / RAN).exists()


def test_tracks_in_a_pickle_that_is_a_program_are_refused(tmp_path: Path) -> None:
    (tmp_path / "tracks.npz").write_bytes(bomb(tmp_path))
    objects = np.array([Bomb(tmp_path / RAN)], dtype=object)
    np.savez(tmp_path / "objects.npz", **{"1_1/f0_hz": objects})
    for name in ("tracks.npz", "objects.npz"):
        with pytest.raises(DataError):
            records_from_npz(tmp_path / name)
    assert not (tmp_path / RAN).exists()


class TestNoSettingTurnsItOn:
    def test_the_source_only_ever_says_false(self) -> None:
        said = [
            (path.name, ast.unparse(keyword.value))
            for folder in ("subtext", "tasks", "flows")
            for path in (CHECKOUT / folder).rglob("*.py")
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Call)
            for keyword in node.keywords
            if keyword.arg in ("trust_remote_code", "allow_pickle", "weights_only")
        ]
        assert said
        assert {value for _, value in said} == {"False"}, said

    def test_every_loading_by_transformers_says_so(self) -> None:
        silent = [
            f"{path.name}: {ast.unparse(node)[:80]}"
            for path in (CHECKOUT / "subtext").rglob("*.py")
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".from_pretrained")
            if ast.unparse(node.func).startswith("Auto")
            if "trust_remote_code" not in [keyword.arg for keyword in node.keywords]
        ]
        assert silent == []

    @pytest.mark.parametrize("name", ["trust_remote_code", "allow_pickle", "use_safetensors"])
    @pytest.mark.parametrize("shape", [RunConfig, Overrides])
    def test_no_configuration_has_such_a_knob(self, shape: Any, name: str) -> None:
        with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
            shape.model_validate({"model": {name: True}})

    def test_nor_does_the_record_of_an_adapter(self) -> None:
        record = adapter_record(base={**TINY_BASE, "trust_remote_code": True})
        with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
            AdapterRecord.model_validate(record)


HUB = {"source": "hub", "name": "team/tiny", "revision": "a" * 40, "sha256": ""}


class TestPins:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            pytest.param({"revision": "main"}, "revision", id="a-branch"),
            pytest.param({"revision": ""}, "lacks the commit", id="no-commit"),
            pytest.param({"revision": "A" * 40}, "revision", id="no-hexadecimal-commit"),
            pytest.param({"sha256": "x"}, "sha256", id="no-digest"),
            pytest.param({"name": "/etc/model"}, "no repository of the Hub", id="a-path"),
            pytest.param({"name": "team/../x"}, "no repository of the Hub", id="a-way-out"),
            pytest.param({"name": "team/x`<b>"}, "no repository of the Hub", id="markup"),
            pytest.param({"source": "path", "revision": ""}, "lacks the sha256", id="folder"),
            pytest.param({"source": "tiny", "revision": ""}, "lacks the sha256", id="tiny"),
        ],
    )
    def test_a_record_names_one_state_of_its_base(self, changes: Any, words: str) -> None:
        with pytest.raises(ValidationError, match=words):
            AdapterRecord.model_validate(adapter_record(base=HUB | changes))

    @pytest.mark.parametrize("base", [HUB, {**HUB, "name": "gpt2"}, TINY_BASE])
    def test_a_record_as_it_is_written_is_read(self, base: dict[str, str]) -> None:
        AdapterRecord.model_validate(adapter_record(base=base))

    def test_a_branch_is_read_at_the_commit_that_an_adapter_has_on_record(self) -> None:
        model = ModelConfig(source="hub", name="team/tiny")
        assert pinned(model, HUB).revision == "a" * 40
        assert pinned(model, {**HUB, "name": "team/other"}).revision == "main"
        tiny = ModelConfig(source="tiny", name="subtext-tiny")
        assert pinned(tiny, TINY_BASE) == tiny


UNSAFE_NAMES = [
    "../../x", "..", ".", "", "/etc/x", "a/b", "a\\b", "C:\\x", "C:x", "~x", "-x", ".hidden", "con",
    "x.", "a..b", "x\n", "x\x00", "x\x1b[2J", "x<b>", "x|y", "x`y`", "é", "x" * 101, "\u202ex",
    "x y",
]  # fmt: skip


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "inside" / "corpus", n_clips=8)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def renamed(path: Path, name: str, *keys: str) -> None:
    """Give the first key of the object at `keys` in a JSON file the name `name`."""
    content = json.loads(path.read_text())
    part = content
    for key in keys:
        part = part[key]
    first = next(iter(part))
    part[name] = part.pop(first)
    path.write_text(json.dumps(content))


# Where a name that data brought could become a path, and how one gets there.
ENTRANCES: dict[str, Callable[[Path, str], object]] = {
    "sarcasm_data.json": lambda root, name: (
        renamed(root / "sarcasm_data.json", name), load_scenarios(root)
    ),
    "prosody.json": lambda root, name: (
        renamed(root / "prosody.json", name, "clips"), load_scenarios(root)
    ),
    "pivot_set.json": lambda root, name: (
        strict_json.write(root / "pivot_set.json", {"clips": {name: {}}}), load_scenarios(root)
    ),
    "official_folds.json": lambda root, name: (
        strict_json.write(root / "official_folds.json", [{"train": ["1_1"], "test": [name]}] * 5),
        read_folds(root, {"1_1": {}}),
    ),
    "training.run_id": lambda root, name: resolve("demo", {"training": {"run_id": name or "/"}}),
    "tracking.registered_model": lambda root, name: resolve(
        "demo", {"tracking": {"registered_model": name}}
    ),
    "publish.adapter_repo": lambda root, name: resolve(
        "demo", {"publish": {"adapter_repo": f"team/{name}"}}
    ),
    "publish.results_repo": lambda root, name: resolve(
        "demo", {"publish": {"results_repo": f"{name}/x"}}
    ),
}  # fmt: skip
# Valid elsewhere: a clip id has rules for Windows, a repository's name for the Hub.
ALLOWED = {
    "training.run_id": {"con", "x.", "a..b"},
    "tracking.registered_model": {"con", "x.", "a..b", "x" * 101},
    "publish.adapter_repo": {"con"},
    "publish.results_repo": {"con"},
}


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_name_that_leads_out_is_refused_at_every_entrance(
    corpus: Path, tmp_path: Path, entrance: str
) -> None:
    kept = {path: path.read_bytes() for path in corpus.iterdir()}
    for name in UNSAFE_NAMES:
        if name in ALLOWED.get(entrance, ()):
            continue
        with pytest.raises((DataError, ConfigError)):
            ENTRANCES[entrance](corpus, name)
        for path, content in kept.items():
            path.write_bytes(content)
    assert {name for name in files(tmp_path) if not name.startswith("inside/corpus")} == {"inside"}


@pytest.mark.parametrize("run_id", sorted(ALLOWED["training.run_id"]))
def test_what_is_allowed_for_a_run_stays_inside(run_id: str) -> None:
    config = resolve("demo", {"training": {"run_id": run_id, "runs_dir": "runs"}})
    run = run_directory(config, "other")
    assert run.path.parent.resolve() == run.path.resolve().parent
    assert run.path.name == run_id


@pytest.mark.slow
def test_ids_in_an_edited_split_open_no_file(home: Path) -> None:
    run = prepared_run(home, "edited")
    split = strict_json.read(run.split)
    strict_json.write(
        run.split, {**split, "held_out": [*split["held_out"], "../../x"], "judged": ["../../x"]}
    )
    with pytest.raises(DataError, match=r"split\.json"):
        load_run_scenarios(run)


def test_a_link_at_the_temporary_name_of_a_clip_is_not_written_through(tmp_path: Path) -> None:
    outside, audio = tmp_path / "outside", tmp_path / "corpus" / "audio"
    outside.write_text("mine")
    audio.mkdir(parents=True)
    for name in (".1_60.mp4.part", "1_60.mp4"):
        (audio / name).symlink_to(outside)
    with zipfile.ZipFile(tmp_path / "raw.zip", "w") as archive:
        archive.writestr("utterances_final/1_60.mp4", b"sound")
    extract_clips(tmp_path / "raw.zip", audio, {"1_60"})
    assert outside.read_text() == "mine"
    assert (audio / "1_60.mp4").read_bytes() == b"sound"
    assert not (audio / "1_60.mp4").is_symlink()
    assert files(audio) == {"1_60.mp4"}


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "x/../../y", "", "..", "x y"])
def test_names_in_the_lock_of_a_fetch_are_names_of_files(name: str) -> None:
    locked = {"repo": "team/x", "file": "x.zip", "revision": "a" * 40, "sha256": "b" * 64}
    Locked.model_validate({**locked, "size": 1})
    for field in ("repo", "file"):
        with pytest.raises(ValidationError):
            Locked.model_validate({**locked, "size": 1, field: name})


def test_checkpoints_are_folders_of_the_run_by_number(tmp_path: Path) -> None:
    for name in ("checkpoint-5", "checkpoint-..", "checkpoint-x", "checkpoint-12", "checkpoint-"):
        (tmp_path / name).mkdir()
    assert list(RunDir(tmp_path).checkpoints) == [5, 12]


def test_a_folder_that_shadows_a_repository_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "team" / "tiny").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MachineError, match="is a folder here as well"):
        resolve_base(ModelConfig(source="hub", name="team/tiny"))


@pytest.mark.parametrize(
    "names", [(), ("adapter_config.json",), ("adapter_config.json", "adapter_model.bin")]
)
def test_an_adapter_without_peft_s_files_never_becomes_a_name_on_the_hub(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    for name in names:
        (tmp_path / name).write_text("{}")
    with pytest.raises(DataError, match="is missing"):
        require_safetensors(tmp_path)
    with pytest.raises(DataError, match="is missing"):
        require_safetensors(tmp_path / "nowhere")


def test_no_pickle_is_read_for_an_adapter_of_a_run(tmp_path: Path) -> None:
    """Neither where a run is judged, whose warm-started adapter and checkpoints peft would load."""
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    (tmp_path / "adapter_model.bin").write_bytes(bomb(tmp_path))
    with pytest.raises(DataError, match="can run any program when it is read"):
        load_adapters(object(), {"trained": tmp_path})  # type: ignore[arg-type]


def test_a_link_in_a_run_leads_nothing_out(
    tmp_path: Path, publish: PublishConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished_run(tmp_path / "run", "links")
    secret = tmp_path / "secret.json"
    secret.write_text('{"key": "mine"}')
    assert run.adapter / "tokenizer.json" in set(plain_files(run.path))
    (run.path / "notes.json").symlink_to(secret)
    (run.adapter / "tokenizer_x.json").symlink_to(secret)
    assert not {path.name for path in plain_files(run.path)} & {"notes.json", "tokenizer_x.json"}
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(PublishError, match=r"tokenizer_x\.json is a link that leads out"):
        publish_adapter(run, publish, "token")
