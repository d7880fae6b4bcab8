"""Configurations of published models that recipes name, for planning on a machine without a network."""

from collections.abc import Mapping
from typing import Any

_LLAMA = {"model_type": "llama", "vocab_size": 32000, "max_position_embeddings": 2048}


def _llama(layers: int, hidden: int, inner: int, heads: int, **others: Any) -> Mapping[str, Any]:
    return {
        **_LLAMA,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        **others,
    }


_7B = _llama(32, 4096, 11008, 32)
_13B = _llama(40, 5120, 13824, 40)
_30B = _llama(60, 6656, 17920, 52)
_65B = _llama(80, 8192, 22016, 64)
_70B = _llama(80, 8192, 28672, 64, num_key_value_heads=8, max_position_embeddings=4096)
_PYTHIA_12B = {
    "model_type": "gpt_neox",
    "vocab_size": 50688,
    "num_hidden_layers": 36,
    "hidden_size": 5120,
    "intermediate_size": 20480,
    "num_attention_heads": 40,
    "max_position_embeddings": 2048,
}
_KNOWN: Mapping[str, Mapping[str, Any]] = {
    "huggyllama/llama-7b": _7B,
    "huggyllama/llama-13b": _13B,
    "huggyllama/llama-30b": _30B,
    "huggyllama/llama-65b": _65B,
    "meta-llama/llama-2-7b-hf": _7B,
    "meta-llama/llama-2-13b-hf": _13B,
    "meta-llama/llama-2-70b-hf": _70B,
    "eleutherai/pythia-12b": _PYTHIA_12B,
}


def known_config(name: str) -> Mapping[str, Any] | None:
    """The configuration of the hub model `name`, or None; letter case does not matter."""
    return _KNOWN.get(name.lower())
