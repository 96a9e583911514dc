"""The keys of effects, and the errors of their insertion."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from window_consumer.database.dialects.dialect import EffectKey
from window_consumer.engine.commits.commit_metadata import topic_hash
from window_consumer.model import headers as names
from window_consumer.model.errors import Fatal, WindowConsumerError
from window_consumer.model.record import Record
from window_consumer.model.record_identity import id_text

__handler_layer__ = True  # its frames are no part of a failure, see runtime/stack.py

BusinessId = Callable[[Record], object]


class IdsUnknownError(WindowConsumerError):
    """The database neither inserted an id nor has it: the record may or may not be done."""

    code = "WC148"


class IdHeldError(WindowConsumerError):
    """Another transaction with the same id did not end in time."""

    code = "WC147"


def key_of(record: Record, by: BusinessId | None) -> EffectKey:
    """Return the key of a record's effect; raises Fatal if ``by`` returns no id."""
    record_id = record.id if by is None else _business_id(by(record), record)
    topic = record.origin.topic if record.is_copy else record.topic
    return EffectKey(_origin_of(topic, _topic_hash(record)), record_id)


def _topic_hash(record: Record) -> int:
    """Return the hash of the id of the topic that first delivered the record.

    A copy carries the id unless an older version wrote it. Then the worker's own source topic
    counts, if the worker reads it.
    """
    carried = record.header(names.ORIGINAL_TOPIC_ID) if record.is_copy else None
    if carried:
        return topic_hash(carried.decode("utf-8", "replace"))
    return record._call.assignment.topic_hash  # noqa: SLF001 - the layers belong to the slots' loop


@lru_cache(256)
def _origin_of(topic: str, hashed: int) -> str:
    return f"{topic}:{hashed:016x}"


def _business_id(given: object, record: Record) -> str:
    if given is None or given in {"", b""}:
        raise Fatal(f"once: by= returned no id for {record!r}")
    return id_text(given if isinstance(given, bytes) else str(given).encode())
