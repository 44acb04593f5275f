"""The shape of a base model, read from its config.json: what memory is counted from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_NEEDED = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
)  # fmt: skip
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclass(frozen=True)
class ModelShape:
    """A dense decoder of the Llama family: attention with `kv_heads`, a gated MLP, RMSNorm.

    `max_positions` is how far the model reads, in tokens; None where its config does not say.
    """

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool
    max_positions: int | None

    @property
    def linear_layers(self) -> dict[str, tuple[int, int]]:
        """Input and output width of the linear layers of one decoder layer, by name."""
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "q_proj": (self.hidden, query),
            "k_proj": (self.hidden, key),
            "v_proj": (self.hidden, key),
            "o_proj": (query, self.hidden),
            "gate_proj": (self.hidden, self.intermediate),
            "up_proj": (self.hidden, self.intermediate),
            "down_proj": (self.intermediate, self.hidden),
        }

    @property
    def linear_parameters(self) -> int:
        """Parameters of all linear layers but the output layer: those that NF4 quantises."""
        return self.layers * sum(wide * high for wide, high in self.linear_layers.values())

    @property
    def other_parameters(self) -> int:
        """Embeddings, the output layer where it has weights of its own, and the norms."""
        tables = 1 if self.tied else 2
        return tables * self.vocabulary * self.hidden + (2 * self.layers + 1) * self.hidden

    @property
    def parameters(self) -> int:
        return self.linear_parameters + self.other_parameters

    def adapter_parameters(self, rank: int, target_modules: tuple[str, ...]) -> int:
        """Parameters of a LoRA adapter: rank x (input + output width) of each adapted layer."""
        widths = (sum(self.linear_layers.get(name, (0, 0))) for name in target_modules)
        return self.layers * rank * sum(widths)


def shape_of(config: Mapping[str, Any]) -> ModelShape | None:
    """Read the content of a config.json; None for a model of another build, such as experts."""
    text = config.get("text_config") or config
    numbers = [n for name in _NEEDED if isinstance(n := text.get(name), int)]
    if len(numbers) < len(_NEEDED) or any(text.get(name) for name in _EXPERTS):
        return None
    hidden, intermediate, layers, heads, vocabulary = numbers
    return ModelShape(
        hidden=hidden,
        intermediate=intermediate,
        layers=layers,
        heads=heads,
        kv_heads=text.get("num_key_value_heads") or heads,
        head_dim=text.get("head_dim") or hidden // heads,
        vocabulary=vocabulary,
        tied=bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings", False))),
        max_positions=text.get("max_position_embeddings"),
    )
