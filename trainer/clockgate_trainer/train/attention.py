"""Attention within the samples of packed rows: a mask where there is none better, variable-length kernels on CUDA."""

from typing import Any

import torch
from torch import nn
from torch.nn.attention.varlen import varlen_attn

from clockgate_trainer.data.collate import Batch
from clockgate_trainer.errors import ConfigError

VARLEN = "clockgate_varlen"
_SEES_LESS = ("sliding_window", "attention_chunk_size")


def check_packing(config: Any) -> None:
    """Raise ConfigError when a model's own attention is narrower than causal: a packed row's mask would widen it."""
    text = config.get_text_config()
    for name in _SEES_LESS:
        if getattr(text, name, None) is not None and getattr(text, "use_sliding_window", True):
            raise ConfigError(f"--packing needs plain causal attention and this model has {name}: leave --packing out")


def use_varlen(model: Any) -> None:
    """Let `model` attend by variable-length kernels, which packed rows on CUDA in bfloat16 or float16 can use."""
    # Needs transformers, which a run of another kind of model does without.
    from transformers import AttentionInterface  # noqa: PLC0415

    AttentionInterface.register(VARLEN, _attend)
    model.set_attn_implementation(VARLEN)


def use_plain(model: Any) -> None:
    """Let `model` attend to one unpacked row at a time again, and to the cache of one, which generating needs."""
    if getattr(getattr(model, "config", None), "_attn_implementation", None) == VARLEN:
        model.set_attn_implementation("sdpa")


def inputs_of(batch: Batch, model: Any) -> dict[str, Any]:
    """The arguments that say what is read and what each token attends to."""
    documents = batch.documents
    kind = getattr(getattr(model, "config", None), "_attn_implementation", None)
    rows, width = batch.input_ids.shape
    if documents is None and kind == VARLEN:
        # Each row is a document of its own. What is padded on its right is seen by no token before it.
        starts = torch.arange(0, rows * width + 1, width, dtype=torch.int32, device=batch.input_ids.device)
        return {"input_ids": batch.input_ids, **_documents(starts, width)}
    if documents is None:
        return {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    placed = {"input_ids": batch.input_ids, "position_ids": documents.positions}
    if kind == VARLEN:
        # The longest document is taken to fill its row: looking it up would wait for the device.
        return {**placed, **_documents(documents.starts, width)}
    mask = documents.mask()
    if kind == "eager":
        # It adds the mask to the scores.
        mask = torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, torch.finfo(torch.bfloat16).min)
    return {**placed, "attention_mask": mask}


def _documents(starts: torch.Tensor, longest: int) -> dict[str, Any]:
    """What variable-length attention is told of documents that begin at `starts` and have `longest` tokens at most."""
    lengths = {"max_length_q": longest, "max_length_k": longest}
    return {"attention_mask": None, "cu_seq_lens_q": starts, "cu_seq_lens_k": starts, **lengths}


def _attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    cu_seq_lens_q: torch.Tensor,
    max_length_q: int,
    dropout: float = 0.0,
    **_other: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of rows laid end to end: rows x heads x tokens x size in, rows x tokens x heads x size out."""
    if dropout:
        raise ConfigError(f"--packing on CUDA has no attention dropout, the model asks for {dropout:g}: set it to 0")
    rows, _, tokens, _ = query.shape
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (part.repeat_interleave(groups, dim=1) for part in (key, value))
    flat = (part.to(value.dtype).transpose(1, 2).flatten(0, 1) for part in (query, key, value))
    ends: tuple[Any, ...] = (cu_seq_lens_q, cu_seq_lens_q, max_length_q, max_length_q)
    attend: Any = varlen_attn
    # A window without an end to the left and of nothing to the right: causal.
    out: torch.Tensor = attend(*flat, *ends, scale=scaling, window_size=(-1, 0))
    return out.view(rows, tokens, *out.shape[1:]), None
