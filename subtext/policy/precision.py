"""One place that chooses device, number format and quantisation, from plain facts.

`choose_precision` is pure and table-tested; `machine_facts` gathers what it needs.
Sources: `nf4` with double quantisation is QLoRA (Dettmers et al. 2023, arXiv 2305.14314); below
compute capability 8.0 there is no bf16 hardware, and torch emulates it silently, so the
capability's number decides, not `torch.cuda.is_bf16_supported()`. The adapter is trained in float32
everywhere: TRL casts a quantised model's to bf16, whose steps are wider than the updates of the
learning rates used here, and which fp16's gradient scaler can't handle (trl#4901).
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from subtext.config import ModelConfig
from subtext.errors import MachineError, Problem
from subtext.policy.threads import wait_passively

Dtype = Literal["bfloat16", "float16", "float32"]

_BF16_CPU_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
_FIRST_BF16_CAPABILITY = (8, 0)
_DTYPE: dict[str, Dtype] = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


@dataclass(frozen=True)
class MachineFacts:
    """What this machine has. `compute_capability` is CUDA's, of the first GPU; None without one."""

    compute_capability: tuple[int, int] | None
    cpu_flags: frozenset[str]
    has_bitsandbytes: bool


@dataclass(frozen=True)
class Precision:
    """How the policy is loaded and trained.

    `dtype` is that of the base's weights (of its compute, where quantised) and of autocast; the
    adapter trains in float32. `reasons` says in words why, for the log.
    """

    device: Literal["cpu", "cuda"]
    dtype: Dtype
    quantization: Literal["nf4", "none"]
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        quantized = "4-bit NF4" if self.quantization == "nf4" else "unquantised"
        return f"{self.device}, {self.dtype}, {quantized} ({'; '.join(self.reasons)})"


def choose_precision(facts: MachineFacts, model: ModelConfig) -> Precision:
    """Choose for `model` on a machine with `facts`. Raises MachineError with every obstacle."""
    on_gpu = model.device != "cpu" and facts.compute_capability is not None
    if problems := list(_obstacles(facts, model, on_gpu)):
        raise MachineError("This machine can't run the configuration", problems)
    dtype, reason = _dtype(facts, model, on_gpu)
    return Precision("cuda" if on_gpu else "cpu", dtype, model.quantization, (reason,))


def machine_facts(device: Literal["auto", "cpu", "cuda"] = "auto") -> MachineFacts:
    """Ask torch, the operating system and the installed packages; no GPU where `device` is cpu."""
    # Every way to torch leads through here first, and libgomp reads its settings when it is loaded.
    wait_passively()
    return MachineFacts(
        compute_capability=None if device == "cpu" else _compute_capability(),
        cpu_flags=_cpu_flags(Path("/proc/cpuinfo")),
        has_bitsandbytes=importlib.util.find_spec("bitsandbytes") is not None,
    )


def _obstacles(facts: MachineFacts, model: ModelConfig, on_gpu: bool) -> Iterator[Problem]:
    if model.quantization == "nf4" and not facts.has_bitsandbytes:
        yield _problem(
            "quantization", "nf4", "bitsandbytes is not installed",
            "pip install bitsandbytes, or set model.quantization=none.",
        )  # fmt: skip
    if model.device == "cuda" and not on_gpu:
        yield _problem(
            "device", "cuda", "no CUDA device is visible to torch",
            "Use profile cpu or demo, or set model.device=cpu.",
        )  # fmt: skip
    elif model.precision == "bf16" and on_gpu and not _has_bf16(facts, on_gpu):
        yield _problem(
            "precision", "bf16", f"{_named(facts, on_gpu)} would emulate it, slowly",
            "Set model.precision=auto or fp16.",
        )  # fmt: skip
    elif model.precision == "fp16" and not on_gpu:
        yield _problem(
            "precision", "fp16", "a CPU does not train in fp16", "Set model.precision=auto."
        )


def _dtype(facts: MachineFacts, model: ModelConfig, on_gpu: bool) -> tuple[Dtype, str]:
    if model.precision != "auto":
        return _DTYPE[model.precision], "as configured"
    if _has_bf16(facts, on_gpu):
        return "bfloat16", f"{_named(facts, on_gpu)} has bf16"
    return ("float16" if on_gpu else "float32"), f"{_named(facts, on_gpu)} lacks bf16"


def _has_bf16(facts: MachineFacts, on_gpu: bool) -> bool:
    if on_gpu:
        return (facts.compute_capability or (0, 0)) >= _FIRST_BF16_CAPABILITY
    return bool(facts.cpu_flags & _BF16_CPU_FLAGS)


def _named(facts: MachineFacts, on_gpu: bool) -> str:
    if on_gpu and facts.compute_capability:
        return "compute capability {}.{}".format(*facts.compute_capability)
    return "this CPU"


def _compute_capability() -> tuple[int, int] | None:
    import torch

    return torch.cuda.get_device_capability(0) if torch.cuda.is_available() else None


def _cpu_flags(cpuinfo: Path) -> frozenset[str]:
    """Instruction-set flags as Linux names them; none known on another system."""
    if not cpuinfo.exists():
        return frozenset()
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo.read_text(), re.M)
    return frozenset(found.group(1).split()) if found else frozenset()


def _problem(field: str, value: str, problem: str, remedy: str) -> Problem:
    return Problem("configuration", f"model.{field}", value, problem, remedy)
