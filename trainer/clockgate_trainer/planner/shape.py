"""The parts of a causal language model that decide memory and speed. Pure."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Linear:
    """A kind of linear layer by its leaf name; each of the model's layers holds `per_layer` of it.

    `paths` are the whole names of all of them in the model.
    """

    name: str
    inputs: int
    outputs: int
    per_layer: int
    paths: tuple[str, ...]

    @property
    def weights(self) -> int:
        """Weights of this kind in one layer."""
        return self.inputs * self.outputs * self.per_layer


@dataclass(frozen=True)
class Shape:
    """A decoder of `layers` equal layers.

    `embedding`, `head` and `other` count parameters; `head` is 0 when it shares the embedding's. `other` are norms and
    biases, of the whole model. `key_value` is the width of keys (and of values) before they are repeated.
    """

    architecture: str
    layers: int
    hidden: int
    key_value: int
    vocabulary: int
    linears: tuple[Linear, ...]
    embedding: int
    head: int
    other: int

    @property
    def layer_weights(self) -> int:
        """Weights of all linears of one layer: what --bits applies to."""
        return sum(linear.weights for linear in self.linears)

    @property
    def linear_weights(self) -> int:
        """Weights of all linears but the head."""
        return self.layers * self.layer_weights

    @property
    def parameters(self) -> int:
        """All parameters."""
        return self.linear_weights + self.embedding + self.head + self.other

    def adapter(self, rank: int, wanted: Callable[[str], bool]) -> int:
        """Parameters of a LoRA adapter of `rank` on the linears whose whole name is `wanted`."""
        return sum(rank * (linear.inputs + linear.outputs) * sum(map(wanted, linear.paths)) for linear in self.linears)
