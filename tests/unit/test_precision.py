"""Device, number format and quantisation from plain facts: one row a machine."""

import pytest

from subtext.config import ModelConfig
from subtext.errors import MachineError
from subtext.policy import precision
from subtext.policy.precision import MachineFacts, choose_precision, machine_facts

T4, A10G, H200 = (7, 5), (8, 6), (9, 0)
BF16_CPU = frozenset({"avx2", "avx512_bf16"})
PLAIN_CPU = frozenset({"avx2"})


def facts(capability=None, flags=PLAIN_CPU, bitsandbytes=True):
    return MachineFacts(capability, flags, bitsandbytes)


CHOICES = [
    pytest.param(facts(), {}, "cpu float32 nf4", id="CPU without bf16: fp32"),
    pytest.param(facts(flags=BF16_CPU), {}, "cpu bfloat16 nf4", id="CPU with bf16"),
    pytest.param(
        facts(flags=BF16_CPU),
        {"quantization": "none"},
        "cpu bfloat16 none",
        id="unquantised",
    ),
    pytest.param(facts(flags=BF16_CPU), {"precision": "fp32"}, "cpu float32 nf4", id="asked fp32"),
    pytest.param(facts(flags=frozenset({"bf16"})), {}, "cpu bfloat16 nf4", id="Arm"),
    pytest.param(facts(T4), {}, "cuda float16 nf4", id="T4: fp16"),
    pytest.param(facts(T4), {"quantization": "none"}, "cuda float16 none", id="T4 unquantised"),
    pytest.param(facts(A10G), {}, "cuda bfloat16 nf4", id="Ampere: bf16"),
    pytest.param(facts(H200), {"quantization": "none"}, "cuda bfloat16 none", id="Hopper"),
    pytest.param(facts((8, 0)), {}, "cuda bfloat16 nf4", id="8.0 itself has bf16"),
    pytest.param(facts(A10G), {"precision": "fp16"}, "cuda float16 nf4", id="asked fp16"),
    pytest.param(facts(H200, BF16_CPU), {"device": "cpu"}, "cpu bfloat16 nf4", id="CPU asked for"),
]


@pytest.mark.parametrize(("machine", "wanted", "expected"), CHOICES)
def test_choice(machine, wanted, expected):
    chosen = choose_precision(machine, ModelConfig(**wanted))
    shown = f"{chosen.device} {chosen.dtype} {chosen.quantization}"
    assert shown == expected
    assert chosen.reasons
    assert chosen.dtype in str(chosen)


REFUSALS = [
    pytest.param(facts(), {"device": "cuda"}, "model.device", "profile cpu", id="no GPU"),
    pytest.param(facts(T4), {"precision": "bf16"}, "model.precision", "7.5", id="bf16 emulated"),
    pytest.param(facts(), {"precision": "fp16"}, "model.precision", "auto", id="fp16 on a CPU"),
    pytest.param(
        facts(bitsandbytes=False), {}, "model.quantization", "pip install", id="no bitsandbytes"
    ),
]


@pytest.mark.parametrize(("machine", "wanted", "field", "remedy"), REFUSALS)
def test_refusal(machine, wanted, field, remedy):
    with pytest.raises(MachineError) as caught:
        choose_precision(machine, ModelConfig(**wanted))
    assert [problem.field for problem in caught.value.problems] == [field]
    assert remedy in str(caught.value)


def test_every_obstacle_is_named_at_once():
    with pytest.raises(MachineError) as caught:
        choose_precision(facts(bitsandbytes=False), ModelConfig(device="cuda"))
    assert len(caught.value.problems) == 2


def test_this_machine_can_be_described():
    assert machine_facts().has_bitsandbytes


def test_a_cpu_run_does_not_ask_torch(monkeypatch):
    monkeypatch.setattr(precision, "_compute_capability", lambda: pytest.fail("asked"))
    assert machine_facts("cpu").compute_capability is None
