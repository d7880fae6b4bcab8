"""One number for the contents of named tensors, equal on two ranks exactly when the tensors are."""

import hashlib
from collections.abc import Mapping

import torch

_INT64_MAX = 2**63 - 1
_HEX_DIGITS = 16


def digest_tensors(tensors: Mapping[str, torch.Tensor]) -> str:
    """SHA-256, in hex, over name, dtype, shape and raw bytes of every tensor in sorted order of names.

    Order of the mapping, device and memory layout do not matter; the sign of a zero and the payload of a NaN do.
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        # repr quotes what a name could contain, so that no two lists of tensors have the same heads.
        digest.update(f"{name!r} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def digest_int64(hex_digest: str) -> int:
    """The first 8 bytes of a hex digest as a number from 0 to 2^63 - 1, for the content_digest of a vote's row."""
    return int(hex_digest[:_HEX_DIGITS], 16) & _INT64_MAX
