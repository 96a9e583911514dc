"""Header names that are not UTF-8, found before anybody else can ask for a record's headers.

``Message.headers()`` of the client (2.16) raises SystemError at such a name, and what it returns
when it is called once more holds a NULL: whoever looks at it ends the process. So it is called once
for each record, on the thread that has read it, and what it left behind is replaced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from operator import length_hint
from typing import Any

from confluent_kafka import Message

from window_consumer.model.headers import LostHeaders

_headers_of: Callable[[Any], object] = Message.headers


def read_headers(records: Sequence[Any]) -> list[Any]:
    """Read the headers of records for the first time; return the records that have lost theirs.

    Those have ``LostHeaders`` from now on. Errors, which stand between records, have none.
    """
    lost: list[Any] = []
    left = iter(records)
    while length_hint(left):
        try:
            # In C from one to the next: most records have none, and cost 30 ns each.
            deque(map(_headers_of, left), maxlen=0)
        except (SystemError, UnicodeDecodeError):
            record = records[len(records) - length_hint(left) - 1]
            record.set_headers(LostHeaders.new())
            lost.append(record)
    return lost
