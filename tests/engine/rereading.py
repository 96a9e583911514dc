"""An Engine that reads two partitions, and reads them again from their commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.engine.producing import ProducingDriven, invoice
from tests.engine.support import ORDERS, OTHERS, Note, note_of
from window_consumer.engine.commits.delivery_guarantee import MakeGuarantee
from window_consumer.model.produce import Produce
from window_consumer.model.protocols import Commit
from window_consumer.model.record import TopicPartition

NAMES = (ORDERS, OTHERS)
KEYS = (b"a", b"b", b"c")
RECORDS = 12
"""Of each partition."""

Place = tuple[TopicPartition, int]
ALL = {(name, offset) for name in NAMES for offset in range(RECORDS)}
MOST_STEPS = 200


class Rereading(ProducingDriven):
    """Keeps commits; the writer is a part of the test."""

    def __init__(
        self, committed: Mapping[TopicPartition, Commit], guarantee: MakeGuarantee, **rules: Any
    ):
        self.committed = committed
        self.delivered = dict.fromkeys(NAMES, 0)
        super().__init__(names=NAMES, guarantee=guarantee, **rules)

    def read(self, name: TopicPartition, count: int = 1) -> None:
        first = self.delivered[name]
        self.delivered[name] = min(RECORDS, first + count)
        found = [Note(at, KEYS[at % len(KEYS)]) for at in range(first, self.delivered[name])]
        if found:
            self.deliver(*found, name=name)

    def step(self, seconds: float = 0.01) -> None:
        """Let time pass, and pass the decisions to the writer."""
        raise NotImplementedError

    def take_written(self) -> None:
        """Let the broker take the written records."""
        raise NotImplementedError

    def result(self, _name: TopicPartition, offset: int) -> Produce:
        """Return the result of a record's call."""
        return invoice(offset)

    def run_slice(self, number: int, *, fails: bool = False) -> None:
        """Let a slot call the records of a slice: all of them fail, or each returns a result."""
        if not self.out:
            return
        slice_ = self.out[number % len(self.out)]
        name = slice_.partition.name
        offsets = [message.offset() for message in slice_.messages]
        if fails:
            self.fail(slice_, *offsets)
        else:
            self.produce(slice_, {each: [self.result(name, each)] for each in offsets})

    def return_late(self) -> None:
        """Let the calls of lost partitions return: that changes nothing."""
        for slice_ in list(self.out):
            if not slice_.partition.accepts_results:
                self.finish(slice_)

    def begin_again(self, names: Sequence[TopicPartition]) -> None:
        for name in names:
            commit = self.committed[name]
            finished = tuple(note_of(commit).finished) if commit.metadata else ()
            known = commit.next_offset, commit.metadata
            self.assign(name, start=commit.next_offset, finished=finished, committed=known)
            self.delivered[name] = commit.next_offset

    def settle(self) -> None:
        """Read, call and answer until all is committed."""
        for _ in range(MOST_STEPS):
            for name in NAMES:
                self.read(name, RECORDS)
            self.step(0.1)
            while self.out:
                self.run_slice(0)
            self.take_written()
            is_all = all(each.next_offset == RECORDS for each in self.committed.values())
            if is_all and not self.engine.work.unfinished():
                self.step()
                return
        raise AssertionError(f"not all is committed: {self.committed}")
