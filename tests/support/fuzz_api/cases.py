"""One case: what is sent, and what is wrong with what came back. All of it follows from seed and number."""

import contextlib
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import grpc
from support import raw_http2
from support.fuzz_api.bodies import body
from support.fuzz_api.doors import Door
from support.fuzz_api.methods import Method

_STATUS = grpc.StatusCode
_NEVER = (_STATUS.UNKNOWN, _STATUS.INTERNAL, _STATUS.DATA_LOSS)
_UNARY_S, _STREAM_S = 20.0, 0.3
_MOST_ANSWERS = 3
_FRAME_KINDS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 255)


@dataclass(frozen=True)
class Case:
    """What case `number` of `seed` does: `sent` in bytes, to `method` if it is a call."""

    seed: int
    number: int
    door: int
    method: Method | None
    sent: tuple[bytes, ...]

    def __str__(self) -> str:
        what = self.method.path if self.method else "a connection"
        shown = ", ".join(one[:100].hex() + ("..." if len(one) > 100 else "") for one in self.sent)
        return f"--seed {self.seed} --case {self.number}: {what}: {shown}"


def make_case(seed: int, number: int, methods: Sequence[Method], doors: int) -> Case:
    """Pure."""
    random = Random(f"{seed}:{number}")
    door = random.randrange(doors)
    if random.random() < 0.12:
        return Case(seed, number, door, None, _bytes_of_a_connection(random, methods))
    method = random.choice(methods)
    count = random.choice((0, 1, 1, 1, 2, 20)) if method.takes_stream else 1
    return Case(seed, number, door, method, tuple(body(random, method.request) for _ in range(count)))


def try_case(case: Case, door: Door, channel: grpc.Channel) -> tuple[str, str | None]:
    """Carry it out; how it ended in one word, and what is wrong with that, or None."""
    if case.method is None:
        _send_bytes(door, case.sent)
        return "connection", None
    try:
        _call(channel, case.method, case.sent)
    except grpc.RpcError as error:
        failed: Any = error
        code = failed.code()
        slow = code is _STATUS.DEADLINE_EXCEEDED and not case.method.gives_stream
        return code.name, f"{code.name}: {failed.details()}" if code in _NEVER or slow else None
    return "OK", None


def _call(channel: Any, method: Method, sent: tuple[bytes, ...]) -> None:
    # `Any`: the stubs demand serializers, which bytes do without.
    if not method.gives_stream:
        channel.unary_unary(method.path)(sent[0], timeout=_UNARY_S)
        return
    if method.takes_stream:
        answers: Any = channel.stream_stream(method.path)(iter(sent), timeout=_STREAM_S)
    else:
        answers = channel.unary_stream(method.path)(sent[0], timeout=_STREAM_S)
    try:
        for _ in zip(range(_MOST_ANSWERS), answers, strict=False):
            pass
    finally:
        answers.cancel()


def _bytes_of_a_connection(random: Random, methods: Sequence[Method]) -> tuple[bytes, ...]:
    if random.random() < 0.3:
        return (random.randbytes(random.choice((1, 24, 1000, 100_000))),)
    frames = [raw_http2.PREFACE, raw_http2.settings(), *_frames(random, methods)]
    if random.random() < 0.3:
        spoiled = random.randrange(len(frames))
        frames[spoiled] = frames[spoiled][: random.randrange(len(frames[spoiled]))]
    return tuple(frames)


def _frames(random: Random, methods: Sequence[Method]) -> Iterator[bytes]:
    for stream in range(1, random.choice((3, 9, 400)), 2):
        method = random.choice(methods)
        kind = random.random()
        if kind < 0.5:
            yield raw_http2.call_headers(stream, method.path)
            yield raw_http2.message(stream, body(random, method.request)[:10_000], flag=random.choice((0, 0, 1, 255)))
        elif kind < 0.7:
            yield raw_http2.call_headers(stream, method.path)
            yield raw_http2.frame(raw_http2.RST_STREAM, stream=stream, payload=random.randbytes(4))
        else:
            number = random.choice((0, stream, 2**31 - 1))
            payload = random.randbytes(random.choice((0, 4, 5, 6, 8, 100)))
            yield raw_http2.frame(random.choice(_FRAME_KINDS), random.randrange(256), number, payload)


def _send_bytes(door: Door, sent: tuple[bytes, ...]) -> None:
    # The daemon may close at any byte, and be right.
    with contextlib.suppress(OSError), door.connect() as connection:
        for one in sent:
            connection.sendall(one)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(0.2)
        for _ in range(20):
            if not connection.recv(4096):
                break
