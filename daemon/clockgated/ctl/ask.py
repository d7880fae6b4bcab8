"""Calls of the read API that more than one command makes."""

import time

import grpc
from clockgate.v1 import clock_pb2, clock_pb2_grpc

from clockgated.ctl import address


def newest_reading(channel: grpc.Channel, path: address.Address) -> tuple[clock_pb2.Reading, int]:
    """As newest_answer, the reading alone."""
    answer, now_boot_ns = newest_answer(channel, path)
    return answer.reading, now_boot_ns


def newest_answer(channel: grpc.Channel, path: address.Address) -> tuple[clock_pb2.GetReadingResponse, int]:
    """The newest reading with what the time daemon says, and the time now in the reading's CLOCK_BOOTTIME.

    The time comes from the reading's own age and ours, rather late than early. Raises UnreachableError, which names
    `path`.
    """
    asked_mono_ns = time.monotonic_ns()
    try:
        response = clock_pb2_grpc.ClockStub(channel).GetReading(
            clock_pb2.GetReadingRequest(), timeout=address.DEADLINE_S
        )
    except grpc.RpcError as error:
        raise address.unreachable(path, error) from None
    reading = response.reading
    return response, reading.as_of_boot_ns + reading.age_ns + time.monotonic_ns() - asked_mono_ns


def newest_epochs(channel: grpc.Channel, path: address.Address) -> list[clock_pb2.Epoch]:
    """The end of the journal of epochs, the newest last. Raises UnreachableError."""
    try:
        answer = clock_pb2_grpc.ClockStub(channel).ListEpochs(clock_pb2.ListEpochsRequest(), timeout=address.DEADLINE_S)
    except grpc.RpcError as error:
        raise address.unreachable(path, error) from None
    return list(answer.epochs)
