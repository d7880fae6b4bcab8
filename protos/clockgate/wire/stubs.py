"""Handlers and client stubs of the standard services, in place of the generated code that no target release ships.

Messages are known at run time only, hence `Any`.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import grpc

from clockgate.wire import HEALTH, REFLECTION_V1, REFLECTION_V1ALPHA, message_class

HealthCheckRequest = message_class(f"{HEALTH}.HealthCheckRequest")
HealthCheckResponse = message_class(f"{HEALTH}.HealthCheckResponse")

HEALTH_SERVICE = f"{HEALTH}.Health"
REFLECTION_SERVICES = (f"{REFLECTION_V1}.ServerReflection", f"{REFLECTION_V1ALPHA}.ServerReflection")

STATUS_UNKNOWN = 0
STATUS_SERVING = 1
STATUS_NOT_SERVING = 2
STATUS_SERVICE_UNKNOWN = 3


class HealthServicer(Protocol):
    """The two methods of grpc.health.v1.Health."""

    def check(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Answer a HealthCheckRequest with a HealthCheckResponse."""
        ...

    def watch(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        """Answer a HealthCheckRequest with a stream of HealthCheckResponse."""
        ...


ReflectionAnswer = Callable[[Iterator[Any], grpc.ServicerContext], Iterator[Any]]


def reflection_request(service: str) -> Any:
    """Class ServerReflectionRequest of one of REFLECTION_SERVICES."""
    return message_class(f"{service.rpartition('.')[0]}.ServerReflectionRequest")


def reflection_response(service: str) -> Any:
    """Class ServerReflectionResponse of one of REFLECTION_SERVICES."""
    return message_class(f"{service.rpartition('.')[0]}.ServerReflectionResponse")


def health_handler(servicer: HealthServicer) -> "grpc.GenericRpcHandler[Any, Any]":
    """Handler to add to a server that answers HEALTH_SERVICE."""
    codec = {
        "request_deserializer": HealthCheckRequest.FromString,
        "response_serializer": HealthCheckResponse.SerializeToString,
    }
    methods = {
        "Check": grpc.unary_unary_rpc_method_handler(servicer.check, **codec),
        "Watch": grpc.unary_stream_rpc_method_handler(servicer.watch, **codec),
    }
    return grpc.method_handlers_generic_handler(HEALTH_SERVICE, methods)


def reflection_handler(service: str, answer: ReflectionAnswer) -> "grpc.GenericRpcHandler[Any, Any]":
    """Handler to add to a server that answers one of REFLECTION_SERVICES."""
    method = grpc.stream_stream_rpc_method_handler(
        answer,
        request_deserializer=reflection_request(service).FromString,
        response_serializer=reflection_response(service).SerializeToString,
    )
    return grpc.method_handlers_generic_handler(service, {"ServerReflectionInfo": method})


class HealthStub:
    """Client of grpc.health.v1.Health."""

    def __init__(self, channel: grpc.Channel) -> None:
        codec = {
            "request_serializer": HealthCheckRequest.SerializeToString,
            "response_deserializer": HealthCheckResponse.FromString,
        }
        self.Check: Any = channel.unary_unary(f"/{HEALTH_SERVICE}/Check", **codec)
        self.Watch: Any = channel.unary_stream(f"/{HEALTH_SERVICE}/Watch", **codec)


class ReflectionStub:
    """Client of one of REFLECTION_SERVICES."""

    def __init__(self, channel: grpc.Channel, service: str) -> None:
        self.ServerReflectionInfo: Any = channel.stream_stream(
            f"/{service}/ServerReflectionInfo",
            request_serializer=reflection_request(service).SerializeToString,
            response_deserializer=reflection_response(service).FromString,
        )
