"""Message classes and methods of a .proto file, made in a descriptor pool of our own.

ClusterD's messages have no package: `Status` and `ClientInfo` are global names, and every client of ClusterD brings its
own copy of them. In the default pool the second copy to be loaded fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


@dataclass(frozen=True, slots=True)
class Method:
    """One rpc. `path` is its HTTP/2 path; `streams`: many answers to one request."""

    path: str
    request: Any
    answer: Any
    streams: bool


@dataclass(frozen=True, slots=True)
class Made:
    classes: dict[str, Any]
    methods: dict[str, Method]


def load(data: bytes) -> Made:
    """`data` is a serialised FileDescriptorProto that imports no other file.

    Works with protobuf 3.20 to 7 (GetMessageClass came with 4.22).
    """
    file = descriptor_pb2.FileDescriptorProto.FromString(data)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(data)
    prefix = f"{file.package}." if file.package else ""
    classes = {m.name: _made(pool, pool.FindMessageTypeByName(prefix + m.name)) for m in file.message_type}

    def of(name: str) -> Any:
        return classes[name.rpartition(".")[2]]

    methods = {
        m.name: Method(f"/{prefix}{service.name}/{m.name}", of(m.input_type), of(m.output_type), m.server_streaming)
        for service in file.service
        for m in service.method
    }
    return Made(classes, methods)


def _made(pool: descriptor_pool.DescriptorPool, descriptor: Any) -> Any:
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    factory: Any = message_factory.MessageFactory(pool)
    return factory.GetPrototype(descriptor)
