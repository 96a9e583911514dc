"""Strays: copies that lie in another partition than the records of their lane.

They were written by key: by an earlier version, by hand, or while their topic had fewer partitions
than the source. Whoever reads that partition need not own the source's, and a lane has one owner.
So they are not called where they lie: each is written, as it is, to the partition of its topic that
has the number of its source's, and is called there.
"""

from __future__ import annotations

from window_consumer.core.ladder import FailedRecord
from window_consumer.core.partition import Partition
from window_consumer.model.fault import Failure, Fault
from window_consumer.model.headers import Reason
from window_consumer.model.record import Message

_WHY = "it lies in another partition than its source's record: it moves to the one of that number"

_FAILURE = Failure(LookupError(_WHY), Fault("", _WHY, "", ""))


def stray(partition: Partition, message: Message, seq: int, now: float) -> FailedRecord:
    """Return a stray as a record that leaves, of no lane: it has not been called here.

    Nothing but the broker's answer may hold it up, so its reason is that of an intervention.
    """
    return FailedRecord(
        partition, message, seq, None, 0, _FAILURE, now, now, reason=Reason.MANUAL, is_stray=True
    )
