"""clockgate.v1.Clock: the newest reading, once or as a stream, and the journal of epochs."""

import threading
from collections.abc import Callable, Iterator, Sequence

import grpc
from clockgate.v1 import clock_pb2, clock_pb2_grpc

from clockgated import host
from clockgated.memory.epochs import Disruption
from clockgated.publish import Publisher
from clockgated.service.convert import detail_messages, epoch_message, reading_message
from clockgated.service.turns import Turns

# A stream owes a message a second; the rest is for getting it out.
_LONGEST_QUIET_S = 0.9
_USUAL_EPOCHS = 100
_MOST_EPOCHS = 1000


class ClockServicer(clock_pb2_grpc.ClockServicer):
    """Reads the publisher; needs no lock of its own. Streams end with UNAVAILABLE once `stopping` is set.

    `epochs` reads the journal, oldest first.
    """

    def __init__(
        self,
        publisher: Publisher,
        stopping: threading.Event,
        epochs: Callable[[], Sequence[Disruption]],
        now_boot_ns: Callable[[], int] = host.boot_ns,
    ) -> None:
        self._publisher = publisher
        self._epochs = epochs
        self._stopping = stopping
        self._turns = Turns()
        self._now_boot_ns = now_boot_ns

    def GetReading(  # noqa: N802 - named by the API
        self, request: clock_pb2.GetReadingRequest, context: grpc.ServicerContext
    ) -> clock_pb2.GetReadingResponse:
        """Answer with the newest reading at once."""
        reading = self._publisher.latest()
        message = reading_message(reading, self._now_boot_ns())
        return clock_pb2.GetReadingResponse(reading=message, details=detail_messages(reading))

    def WatchReadings(  # noqa: N802 - named by the API
        self, request: clock_pb2.WatchReadingsRequest, context: grpc.ServicerContext
    ) -> Iterator[clock_pb2.WatchReadingsResponse]:
        """Send the newest reading now, on every change, and at least once a second."""
        with self._turns.one() as behind_s:
            while not self._stopping.is_set():
                reading = self._publisher.latest()
                yield clock_pb2.WatchReadingsResponse(reading=reading_message(reading, self._now_boot_ns()))
                self._publisher.wait_newer(reading.sequence, _LONGEST_QUIET_S - behind_s)
                if behind_s > 0:
                    self._stopping.wait(behind_s)
        context.abort(grpc.StatusCode.UNAVAILABLE, "clockgated is stopping; connect again")

    def ListEpochs(  # noqa: N802 - named by the API
        self, request: clock_pb2.ListEpochsRequest, context: grpc.ServicerContext
    ) -> clock_pb2.ListEpochsResponse:
        """Answer with the end of the journal, the newest epoch last."""
        limit = request.limit if request.HasField("limit") else _USUAL_EPOCHS
        if limit < 1:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"limit = {limit}: wanted 1 to {_MOST_EPOCHS}, or none")
        newest = self._epochs()[-min(limit, _MOST_EPOCHS) :]
        return clock_pb2.ListEpochsResponse(epochs=[epoch_message(one) for one in newest])
