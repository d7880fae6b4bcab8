"""What a failed call says of itself; grpc's types leave open whether it says anything."""

import grpc


def status_of(error: grpc.RpcError) -> grpc.StatusCode | None:
    """Status of a failed call; None when the error carries none."""
    code = getattr(error, "code", None)
    return code() if callable(code) else None


def text_of(error: grpc.RpcError) -> str:
    """The daemon's sentence about a failed call; empty when there is none."""
    details = getattr(error, "details", None)
    return str((details() if callable(details) else None) or "")
