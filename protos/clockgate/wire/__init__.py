"""The standard services grpc.health.v1 and grpc.reflection.{v1,v1alpha}, for which Debian packages no stubs.

Their messages live in a descriptor pool of their own: in the default pool a second file that defines the same names,
as grpcio-health-checking and grpcio-reflection bring along, raises "duplicate symbol".
"""

from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

HEALTH = "grpc.health.v1"
REFLECTION_V1 = "grpc.reflection.v1"
REFLECTION_V1ALPHA = "grpc.reflection.v1alpha"


def standard_files() -> descriptor_pb2.FileDescriptorSet:
    """Descriptors of the standard services."""
    return descriptor_pb2.FileDescriptorSet.FromString((files(__name__) / "standard.binpb").read_bytes())


def own_files() -> descriptor_pb2.FileDescriptorSet:
    """Descriptors of clockgate.v1 with their comments, which generated code leaves out."""
    return descriptor_pb2.FileDescriptorSet.FromString((files("clockgate.v1") / "descriptors.binpb").read_bytes())


def _private_pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for file in standard_files().file:
        pool.Add(file)
    return pool


_POOL = _private_pool()


def message_class(full_name: str) -> Any:
    """Class of the standard message `full_name`, for instance "grpc.health.v1.HealthCheckRequest".

    Its type is only known at run time. Raises KeyError for a name that the standard files do not define.
    """
    descriptor = _POOL.FindMessageTypeByName(full_name)
    # GetMessageClass came in protobuf 4.22, its predecessor went in 5: Debian 12 has 4.21.
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    predecessor: Any = message_factory.MessageFactory(_POOL)
    return predecessor.GetPrototype(descriptor)
