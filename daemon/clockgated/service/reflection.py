"""Server reflection: tells grpcurl and its like what this server offers, comments included.

Descriptors come from the committed sets rather than from generated code, which carries no comments.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import grpc
from clockgate.wire import own_files, standard_files, stubs
from google.protobuf import descriptor_pb2

from clockgated.service.words import shown

_NOT_FOUND = 5
_INVALID_ARGUMENT = 3


class Catalog:
    """Files by name, and the file of each fully qualified symbol."""

    def __init__(self, files: Iterable[descriptor_pb2.FileDescriptorProto]) -> None:
        self._files = {file.name: file for file in files}
        self._owner = {symbol: file.name for file in self._files.values() for symbol in _symbols(file)}

    def file(self, name: str) -> list[bytes] | None:
        """The file `name` and everything that it imports, serialised; None when it is not known."""
        if name not in self._files:
            return None
        names = [name]
        for known in names:  # grows while it is walked
            names.extend(other for other in self._files[known].dependency if other not in names)
        return [self._files[name].SerializeToString() for name in names]

    def file_of(self, symbol: str) -> list[bytes] | None:
        """As `file`, for the file that defines `symbol` (a service, method, message, field, enum or value)."""
        owner = self._owner.get(symbol)
        return None if owner is None else self.file(owner)

    def defines(self, symbol: str) -> bool:
        """Whether any file defines `symbol`."""
        return symbol in self._owner


def default_catalog() -> Catalog:
    """Everything that clockgated serves."""
    return Catalog([*own_files().file, *standard_files().file])


def answerer(
    service: str, catalog: Catalog, services: Collection[str]
) -> Callable[[Iterator[Any], grpc.ServicerContext], Iterator[Any]]:
    """The method ServerReflectionInfo of reflection version `service`, listing `services`."""
    response_class = stubs.reflection_response(service)

    def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        for request in requests:
            response = response_class(valid_host=request.host, original_request=request)
            _fill(response, request, catalog, services)
            yield response

    return answer


def _fill(response: Any, request: Any, catalog: Catalog, services: Collection[str]) -> None:
    kind = request.WhichOneof("message_request")
    asked: Any = getattr(request, kind) if kind else None
    match kind:
        case "list_services":
            response.list_services_response.SetInParent()
            for name in sorted(services):
                response.list_services_response.service.add(name=name)
        case "file_by_filename":
            _fill_files(response, catalog.file(asked), f"no file {shown(asked)}")
        case "file_containing_symbol":
            _fill_files(response, catalog.file_of(asked), f"no symbol {shown(asked)}")
        case "file_containing_extension":
            _fill_files(response, None, "there are no extensions here")
        case "all_extension_numbers_of_type":
            if catalog.defines(asked):
                response.all_extension_numbers_response.base_type_name = asked
            else:
                _fill_files(response, None, f"no symbol {shown(asked)}")
        case _:
            response.error_response.error_code = _INVALID_ARGUMENT
            response.error_response.error_message = "the request names nothing to look up"


def _fill_files(response: Any, files: list[bytes] | None, missing: str) -> None:
    if files is None:
        response.error_response.error_code = _NOT_FOUND
        response.error_response.error_message = missing
    else:
        response.file_descriptor_response.file_descriptor_proto.extend(files)


def _symbols(file: descriptor_pb2.FileDescriptorProto) -> Iterator[str]:
    package = f"{file.package}." if file.package else ""
    for service in file.service:
        yield package + service.name
        yield from (f"{package}{service.name}.{method.name}" for method in service.method)
    for enum in file.enum_type:
        yield from _enum_symbols(package, enum)
    for message in file.message_type:
        yield from _message_symbols(package, message)


def _message_symbols(scope: str, message: descriptor_pb2.DescriptorProto) -> Iterator[str]:
    name = scope + message.name
    yield name
    yield from (f"{name}.{field.name}" for field in message.field)
    yield from (f"{name}.{oneof.name}" for oneof in message.oneof_decl)
    for enum in message.enum_type:
        yield from _enum_symbols(f"{name}.", enum)
    for nested in message.nested_type:
        yield from _message_symbols(f"{name}.", nested)


def _enum_symbols(scope: str, enum: descriptor_pb2.EnumDescriptorProto) -> Iterator[str]:
    yield scope + enum.name
    # Values are named in the scope around their enum.
    yield from (scope + value.name for value in enum.value)
