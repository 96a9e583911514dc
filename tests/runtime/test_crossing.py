"""Records that cross to another process are the same there."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, Note
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.record import Call, Message
from window_consumer.runtime.pools.processes.remote_slice import WatchedCall
from window_consumer.runtime.pools.processes.serialization import (
    ReceivedMessage,
    SerializedSlice,
    packed,
    pickled,
    unpacked,
)

HEADERS = [("h", b"1"), ("h", None)]


class Stamped(Note):
    def timestamp(self) -> tuple[int, int]:
        stamp: tuple[int, int] = self._fields.get("stamp", (1, 5))
        return stamp


def fields(message: Message) -> tuple[Any, ...]:
    return (
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        message.headers(),
        message.timestamp(),
        len(message),
    )


def crossed(messages: Sequence[Message], seqs: Sequence[int]) -> list[Message]:
    slice_ = Slice(Driven().engine.partitions[ORDERS], list(messages), seqs, 0)
    serialized = SerializedSlice(*pickle.loads(pickled(packed(1, 0, slice_, messages))))  # noqa: S301 - our own
    found: list[Message] = []
    for row in unpacked(serialized):
        message = ReceivedMessage()
        message.row = row
        found.append(message)
    return found


@pytest.mark.parametrize(
    ("offsets", "seqs"),
    [
        ([4, 5, 6, 7], range(4)),
        ([4, 5, 7, 9], range(4)),  # the log has holes
        ([5, 9, 7, 8], [0, 3, 1, 2]),  # from the lines of keys: the ends look like a run
        ([3], range(1)),
    ],
)
def test_offsets_cross_whatever_their_order(offsets: list[int], seqs: Sequence[int]) -> None:
    messages = [Stamped(offset, b"k") for offset in offsets]
    assert list(map(fields, crossed(messages, seqs))) == list(map(fields, messages))


@pytest.mark.parametrize("keys", [[None, None], [None, b""], [b"", None], [b"", b""], [b"a", b"b"]])
def test_keys_cross_and_an_empty_one_is_not_none(keys: list[bytes | None]) -> None:
    messages = [Stamped(offset, key) for offset, key in enumerate(keys)]
    assert [each.key() for each in crossed(messages, range(2))] == keys


def test_values_headers_and_times_cross() -> None:
    messages = [
        Stamped(0, value=None, stamp=(0, 0)),
        Stamped(1, value=b"", headers=HEADERS, stamp=(2, 2**41)),
        Stamped(2, headers=None, stamp=(1, 7)),
    ]
    assert list(map(fields, crossed(messages, range(3)))) == list(map(fields, messages))
    for each in messages:
        assert list(map(fields, crossed([each], range(1)))) == [fields(each)]


def test_a_call_for_another_process_is_the_slices_call_in_all_its_fields() -> None:
    call = Call()
    for number, name in enumerate(Call.__slots__):
        setattr(call, name, number)
    watched = WatchedCall(call)
    assert [getattr(watched, name) for name in Call.__slots__] == list(range(len(Call.__slots__)))
