"""What protoc would generate of a message Order: its class, made of the descriptor."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def _classes() -> tuple[Any, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    of_field = descriptor_pb2.FieldDescriptorProto
    for name in ("Order", "Refund"):
        message = file.message_type.add(name=name)
        for number, (key, kind) in enumerate(
            {"id": of_field.TYPE_INT64, "customer": of_field.TYPE_STRING}.items(), 1
        ):
            message.field.add(name=key, number=number, type=kind, label=of_field.LABEL_OPTIONAL)
    descriptors = descriptor_pool.DescriptorPool().AddSerializedFile(file.SerializeToString())
    found = descriptors.message_types_by_name
    return tuple(message_factory.GetMessageClass(found[name]) for name in ("Order", "Refund"))


Order, Refund = _classes()
