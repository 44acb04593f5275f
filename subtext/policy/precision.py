"""One place that chooses device, number format and quantisation, from plain facts.

`choose_precision` is pure and table-tested; `machine_facts` gathers what it needs.
Sources: `nf4` with double quantisation is QLoRA (Dettmers et al. 2023, arXiv 2305.14314); below
compute capability 8.0 there is no bf16 hardware, and torch emulates it silently, so the
capability's number decides, not `torch.cuda.is_bf16_supported()`.
"""

from __future__ import annotations

import importlib.util
import re
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

    `dtype` is that of weights (of compute, where quantised) and autocast; `adapter_dtype` that of
    the trained adapter. `reasons` says in words why, for the log.
    """

    device: Literal["cpu", "cuda"]
    dtype: Dtype
    quantization: Literal["nf4", "none"]
    adapter_dtype: Dtype
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        quantized = "4-bit NF4" if self.quantization == "nf4" else "unquantised"
        return (
            f"{self.device}, {self.dtype}, {quantized}, adapter {self.adapter_dtype} "
            f"({'; '.join(self.reasons)})"
        )


def choose_precision(facts: MachineFacts, model: ModelConfig) -> Precision:
    """Choose for `model` on a machine with `facts`. Raises MachineError with every obstacle."""
    problems: list[Problem] = []
    if model.device == "cuda" and facts.compute_capability is None:
        problems.append(
            _problem("device", model.device, "no CUDA device is visible to torch",
                     "Use profile cpu or demo, or set model.device=cpu.")
        )  # fmt: skip
    if model.quantization == "nf4" and not facts.has_bitsandbytes:
        problems.append(
            _problem("quantization", "nf4", "bitsandbytes is not installed",
                     "pip install bitsandbytes, or set model.quantization=none.")
        )  # fmt: skip
    on_gpu = model.device != "cpu" and facts.compute_capability is not None
    choose = _on_gpu if on_gpu else _on_cpu
    precision, problem = choose(facts, model)
    if problem:
        problems.append(problem)
    if problems:
        raise MachineError("This machine can't run the configuration", problems)
    return precision


def machine_facts() -> MachineFacts:
    """Ask torch, the operating system and the installed packages."""
    # Every way to torch leads through here first, and libgomp reads its settings when it is loaded.
    wait_passively()
    import torch

    has_gpu = torch.cuda.is_available()
    return MachineFacts(
        compute_capability=torch.cuda.get_device_capability(0) if has_gpu else None,
        cpu_flags=_cpu_flags(Path("/proc/cpuinfo")),
        has_bitsandbytes=importlib.util.find_spec("bitsandbytes") is not None,
    )


def _on_gpu(facts: MachineFacts, model: ModelConfig) -> tuple[Precision, Problem | None]:
    capability = facts.compute_capability or (0, 0)
    shown = f"compute capability {capability[0]}.{capability[1]}"
    has_bf16 = capability >= _FIRST_BF16_CAPABILITY
    problem = None
    if model.precision == "bf16" and not has_bf16:
        problem = _problem(
            "precision", "bf16", f"{shown} has no bf16 hardware and would emulate it slowly",
            "Set model.precision=auto or fp16.",
        )  # fmt: skip
    if model.precision == "auto":
        dtype: Dtype = "bfloat16" if has_bf16 else "float16"
        reasons = [f"{shown} {'has' if has_bf16 else 'lacks'} bf16"]
    else:
        dtype, reasons = _DTYPE[model.precision], ["precision as configured"]
    adapter: Dtype = "float32"
    if model.quantization == "nf4" and dtype == "bfloat16":
        adapter = "bfloat16"
        reasons.append("TRL keeps a quantised model's adapter in bf16")
    elif dtype == "float16":
        reasons.append("the gradient scaler of fp16 needs a float32 adapter")
    return Precision("cuda", dtype, model.quantization, adapter, tuple(reasons)), problem


def _on_cpu(facts: MachineFacts, model: ModelConfig) -> tuple[Precision, Problem | None]:
    has_bf16 = bool(facts.cpu_flags & _BF16_CPU_FLAGS)
    problem = None
    if model.precision == "fp16":
        problem = _problem(
            "precision", "fp16", "a CPU does not train in fp16", "Set model.precision=auto."
        )
    if model.precision == "auto":
        dtype: Dtype = "bfloat16" if has_bf16 else "float32"
        reasons = [f"this CPU {'has' if has_bf16 else 'lacks'} bf16 instructions"]
    else:
        dtype, reasons = _DTYPE[model.precision], ["precision as configured"]
    adapter: Dtype = "float32"
    if model.quantization == "nf4" and dtype == "bfloat16":
        adapter = "bfloat16"
        reasons.append("TRL keeps a quantised model's adapter in bf16")
    return Precision("cpu", dtype, model.quantization, adapter, tuple(reasons)), problem


def _cpu_flags(cpuinfo: Path) -> frozenset[str]:
    """Instruction-set flags as Linux names them; none known on another system."""
    if not cpuinfo.exists():
        return frozenset()
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo.read_text(), re.M)
    return frozenset(found.group(1).split()) if found else frozenset()


def _problem(field: str, value: str, problem: str, remedy: str) -> Problem:
    return Problem("configuration", f"model.{field}", value, problem, remedy)
