"""Every method of the daemon as its descriptors have it, those of the standard services included."""

from dataclasses import dataclass

from clockgate.wire import own_files, standard_files
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool


@dataclass(frozen=True)
class Method:
    """`path` as in a call, what it takes, and which of its sides are streams."""

    path: str
    request: Descriptor
    takes_stream: bool
    gives_stream: bool


def methods() -> tuple[Method, ...]:
    """All of them, in the order of their files."""
    pool = DescriptorPool()
    files = (*own_files().file, *standard_files().file)
    for file in files:
        pool.Add(file)
    return tuple(
        Method(
            f"/{file.package}.{service.name}/{method.name}",
            pool.FindMessageTypeByName(method.input_type.lstrip(".")),
            method.client_streaming,
            method.server_streaming,
        )
        for file in files
        for service in file.service
        for method in service.method
    )
