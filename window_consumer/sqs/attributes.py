"""Message attributes: Kafka's headers as SQS has them, with types and an MD5 sum."""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import md5
from typing import Any, Final

from attrs import frozen

from window_consumer.model.headers import PREFIX
from window_consumer.sqs.errors import SqsError, SqsErrorKind, shown

TYPES_HEADER: Final = "sqs-attribute-types"
"""A header with the types of the attributes other than String, as a JSON object."""

ENCODING: Final = "wc-encoding"
"""The attribute that names the encoding of a body whose value is not text."""

MOST_ATTRIBUTES: Final = 10

_NAME: Final = re.compile(r"(?!(?i:aws|amazon)\.)(?!\.)(?!.*\.\.)[A-Za-z0-9_.-]{1,256}(?<!\.)")
_TYPE: Final = re.compile(r"(String|Number|Binary)(\.[^\x00-\x1f]{1,249})?")
_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")
_NOT_ALLOWED: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""The characters that SQS texts cannot contain, because XML 1.0 cannot."""

_STRING: Final = "String"


def is_text(text: str) -> bool:
    """Return whether SQS accepts a text: without control characters and half surrogate pairs."""
    return _NOT_ALLOWED.search(text) is None


def text_of(value: bytes) -> str | None:
    """Return the text of bytes if they are UTF-8 and SQS accepts it."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if is_text(text) else None


@frozen
class MessageAttribute:
    """An attribute with its type, such as ``String`` or ``Number.int``, and its value."""

    name: str
    data_type: str
    value: bytes

    @property
    def is_binary(self) -> bool:
        """Return whether the value travels as BinaryValue."""
        return self.data_type.startswith("Binary")

    @property
    def size(self) -> int:
        """Return how many bytes count towards the limit of a message."""
        return len(self.name.encode()) + len(self.data_type.encode()) + len(self.value)

    def as_json(self) -> dict[str, str]:
        """Return the attribute as clients read it."""
        if self.is_binary:
            return {"DataType": self.data_type, "BinaryValue": b64encode(self.value).decode()}
        return {"DataType": self.data_type, "StringValue": self.value.decode()}


def read_attributes(given: Mapping[str, Any]) -> Sequence[MessageAttribute]:
    """Return the attributes of a message that a client sends; raises SqsError."""
    if len(given) > MOST_ATTRIBUTES:
        raise _refused(
            f"{len(given)} message attributes are too many: at most {MOST_ATTRIBUTES} are allowed"
        )
    return [_read(name, value) for name, value in given.items()]


def _read(name: str, given: Any) -> MessageAttribute:
    if _NAME.fullmatch(name) is None:
        raise _refused(
            f"{shown(name)} is not the name of a message attribute: up to 256 letters, digits,"
            " and _ - . (not at an end, nor two in a row), without AWS. or Amazon. in front"
        )
    if not isinstance(given, Mapping):
        raise _refused(f"the message attribute {name} is not an object with DataType")
    data_type = given.get("DataType")
    if not isinstance(data_type, str) or _TYPE.fullmatch(data_type) is None:
        raise _refused(
            f"the message attribute {name} has the DataType {shown(data_type)}: String, Number or"
            " Binary, which may have a label, as in Number.int"
        )
    key = "BinaryValue" if data_type.startswith("Binary") else "StringValue"
    value = given.get(key)
    if not isinstance(value, str) or not value:
        raise _refused(f"the message attribute {name} of type {data_type} has no {key}")
    if key == "BinaryValue":
        return MessageAttribute(name, data_type, _decoded(name, value))
    if not is_text(value):
        raise _refused(f"the message attribute {name} has characters that are not allowed")
    if data_type.startswith("Number") and _NUMBER.fullmatch(value) is None:
        raise _refused(f"the message attribute {name} is not a number: {shown(value)}")
    return MessageAttribute(name, data_type, value.encode())


def _decoded(name: str, value: str) -> bytes:
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise _refused(f"the message attribute {name} is not base64") from None


def _refused(message: str) -> SqsError:
    return SqsError(SqsErrorKind.INVALID_VALUE, message)


def headers_of(attributes: Iterable[MessageAttribute]) -> list[tuple[str, bytes]]:
    """Return the headers of a message that a client sends; raise SqsError for reserved names."""
    headers, types = [], {}
    for each in attributes:
        if each.name == ENCODING:
            continue
        if each.name.lower().startswith(PREFIX) or each.name == TYPES_HEADER:
            raise _refused(f"the message attribute {each.name} has a name that is reserved")
        headers.append((each.name, each.value))
        if each.data_type != _STRING:
            types[each.name] = each.data_type
    if types:
        headers.append((TYPES_HEADER, json.dumps(types, sort_keys=True).encode()))
    return headers


def attributes_of(headers: Sequence[tuple[str, bytes]]) -> Sequence[MessageAttribute]:
    """Return a record's headers as attributes; of headers with equal names the last one counts.

    The type is the one that was sent with it, else String, or Binary for values that are not text.
    """
    named = dict(headers)
    types = _types_in(named.pop(TYPES_HEADER, b"")) if TYPES_HEADER in named else {}
    return [_typed(name, value, types.get(name)) for name, value in named.items()]


def _types_in(header: bytes) -> Mapping[str, str]:
    try:
        found = json.loads(header)
    except (ValueError, RecursionError):
        return {}
    pairs = found.items() if isinstance(found, dict) else ()
    return {name: each for name, each in pairs if isinstance(each, str) and _TYPE.fullmatch(each)}


def _typed(name: str, value: bytes, data_type: str | None) -> MessageAttribute:
    if data_type is None or not data_type.startswith("Binary"):
        data_type = "Binary" if text_of(value) is None else data_type or _STRING
    return MessageAttribute(name, data_type, value)


def selection_of(wanted: Collection[str]) -> Callable[[str], bool]:
    """Return which attributes a client wants: ``All``, ``.*``, names, prefixes such as ``a.*``."""
    if "All" in wanted or ".*" in wanted:
        return lambda _: True
    names = frozenset(wanted)
    beginnings = tuple(each.removesuffix("*") for each in wanted if each.endswith(".*"))
    return lambda name: name in names or name.startswith(beginnings)


def md5_of(attributes: Iterable[MessageAttribute]) -> str:
    """Return the MD5 sum that clients verify: of names, types and values, sorted by name."""
    digest = md5(usedforsecurity=False)
    for each in sorted(attributes, key=lambda each: each.name):
        for part in (each.name.encode(), each.data_type.encode()):
            digest.update(len(part).to_bytes(4, "big") + part)
        digest.update(b"\x02" if each.is_binary else b"\x01")
        digest.update(len(each.value).to_bytes(4, "big") + each.value)
    return digest.hexdigest()
