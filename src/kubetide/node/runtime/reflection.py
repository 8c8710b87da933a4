"""Server reflection: a gRPC server says itself which services it has and what their messages look like.

Tools such as `grpcurl` ask for it. Two versions of the protocol are in use, `v1` and `v1alpha`; their messages have
the same bytes, so one answer serves both. What is described is exactly the files that are passed in, with all they
import.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import Descriptor, FileDescriptor

from kubetide.node.runtime.protos import reflection_pb2 as pb

METHODS = tuple(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo" for version in ("v1", "v1alpha"))
NOT_FOUND, UNIMPLEMENTED = 5, 12
"""Codes of gRPC as they stand in an answer."""


class Reflection:
    """Answers questions about the services of some files."""

    def __init__(self, *described: FileDescriptor) -> None:
        self._services = sorted(service.full_name for file in described for service in file.services_by_name.values())
        self._files = {file.name: file for root in described for file in _with_imports(root)}
        self._symbols = {symbol: file for file in self._files.values() for symbol in _symbols(file)}

    def answer(self, request: pb.ServerReflectionRequest) -> pb.ServerReflectionResponse:
        """Return the answer to one question; what is not known is an error inside the answer, not of the call."""
        response = pb.ServerReflectionResponse(valid_host=request.host, original_request=request)
        match request.WhichOneof("message_request"):
            case "list_services":
                services = (pb.ServiceResponse(name=name) for name in self._services)
                response.list_services_response.service.extend(services)
            case "file_by_filename":
                self._describe(response, self._files.get(request.file_by_filename), request.file_by_filename)
            case "file_containing_symbol":
                symbol = request.file_containing_symbol
                self._describe(response, self._symbols.get(symbol.removeprefix(".")), symbol)
            case "file_containing_extension":
                asked = request.file_containing_extension
                self._describe(response, None, f"extension {asked.extension_number} of {asked.containing_type}")
            case "all_extension_numbers_of_type":
                name = request.all_extension_numbers_of_type
                if name.removeprefix(".") in self._symbols:
                    response.all_extension_numbers_response.base_type_name = name
                else:
                    _refuse(response, NOT_FOUND, f"{name} is not known")
            case _:
                _refuse(response, UNIMPLEMENTED, "nothing that is known was asked")
        return response

    def _describe(self, response: pb.ServerReflectionResponse, file: FileDescriptor | None, asked: str) -> None:
        if file is None:
            _refuse(response, NOT_FOUND, f"{asked} is not known")
            return
        texts = (one.serialized_pb for one in _with_imports(file))
        response.file_descriptor_response.file_descriptor_proto.extend(texts)


class ReflectionHandler(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # not subscriptable at run time
    """Routes the reflection calls of both versions."""

    def __init__(self, reflection: Reflection) -> None:
        self._reflection = reflection

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return grpc.stream_stream_rpc_method_handler(self._answers) if handler_call_details.method in METHODS else None

    async def _answers(self, questions: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
        async for question in questions:
            request = pb.ServerReflectionRequest.FromString(question)
            yield self._reflection.answer(request).SerializeToString()


def _with_imports(file: FileDescriptor) -> Iterator[FileDescriptor]:
    """Yield a file and, each once, what it imports."""
    seen: dict[str, FileDescriptor] = {}
    waiting = [file]
    while waiting:
        one = waiting.pop(0)
        if one.name not in seen:
            seen[one.name] = one
            waiting += one.dependencies
    yield from seen.values()


def _symbols(file: FileDescriptor) -> Iterator[str]:
    for service in file.services_by_name.values():
        yield service.full_name
        yield from (method.full_name for method in service.methods)
    yield from (enum.full_name for enum in file.enum_types_by_name.values())
    yield from _messages(file.message_types_by_name.values())


def _messages(types: Iterable[Descriptor]) -> Iterator[str]:
    for message in types:
        yield message.full_name
        yield from (enum.full_name for enum in message.enum_types)
        yield from _messages(message.nested_types)


def _refuse(response: pb.ServerReflectionResponse, code: int, message: str) -> None:
    response.error_response.error_code = code
    response.error_response.error_message = message
