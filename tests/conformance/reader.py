"""A listener that keeps a journal, around a Source under test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tests.conformance.stages import DEADLINE_S
from window_consumer.model.errors import CommitFailedError, WindowConsumerError
from window_consumer.model.protocols import Batch, Commit, CommitResults, Source
from window_consumer.model.record import Message, TopicPartition

Event = tuple[str, str, Any]
"""Whose, what, and about which partitions."""


class Reader:
    """Reads with a Source and records what it reports. Begins where the group has committed, or at
    0.

    Readers that share a journal show in which order things happened to all of them.
    """

    def __init__(self, source: Source, journal: list[Event] | None = None, name: str = "reader"):
        self.source = source
        self.name = name
        self.journal: list[Event] = [] if journal is None else journal
        self.held: set[TopicPartition] = set()
        self.records: dict[TopicPartition, list[Message]] = {}
        self.unreadable: dict[TopicPartition, list[int]] = {}
        self.answers: dict[TopicPartition, list[CommitFailedError | None]] = {}
        self.errors: list[WindowConsumerError] = []
        self.out_of_range: list[TopicPartition] = []
        self.begin: Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int | None]] = (
            self._committed_or_first
        )
        self.on_trouble: Callable[[TopicPartition], object] = lambda _name: None
        self.max_records = 500
        self.within_poll = False
        self._owner = threading.get_ident()

    def _committed_or_first(self, names: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        found = self.source.committed(names, DEADLINE_S)
        return {name: found[name].next_offset or 0 for name in names}

    # ---- the Listener

    def on_assigned(self, names: Sequence[TopicPartition]) -> None:
        self._note("assigned", names)
        self.held.update(names)
        self.source.start(self.begin(names))

    def on_revoked(self, names: Sequence[TopicPartition]) -> None:
        self._note("revoked", names)
        self.held.difference_update(names)

    def on_lost(self, names: Sequence[TopicPartition]) -> None:
        self._note("lost", names)
        self.held.difference_update(names)

    def on_committed(self, results: CommitResults) -> None:
        self._note("committed", results)
        for name, error in results.items():
            self.answers.setdefault(name, []).append(error)

    def on_out_of_range(self, name: TopicPartition) -> None:
        self._note("out of range", [name])
        self.out_of_range.append(name)
        self.on_trouble(name)

    def on_error(self, error: WindowConsumerError) -> None:
        self._note("error", [])
        self.errors.append(error)

    def _note(self, what: str, names: Iterable[TopicPartition]) -> None:
        assert self.within_poll, f"{what} was told outside of poll"
        assert threading.get_ident() == self._owner, f"{what} was told on another thread"
        self.journal.append((self.name, what, frozenset(names)))

    # ---- reading

    def turn(self, max_records: int | None = None) -> Sequence[Batch]:
        self.within_poll = True
        try:
            wanted = self.max_records if max_records is None else max_records
            batches = self.source.poll(wanted, 0.02)
        finally:
            self.within_poll = False
        for batch in batches:
            name, messages = batch.name, batch.messages
            assert batch.size == sum(map(len, messages))
            assert {(m.topic(), m.partition()) for m in messages} == {name}
            self.journal.append((self.name, "records", (name, [m.offset() for m in messages])))
            self.records.setdefault(name, []).extend(messages)
            self.unreadable.setdefault(name, []).extend(batch.unreadable)
        return batches

    def until(self, what: Callable[[], object], *others: Reader) -> None:
        """Take turns, and let others take theirs, until it is so."""
        deadline = time.monotonic() + DEADLINE_S
        while not what():
            assert time.monotonic() < deadline, f"it did not happen: {self._reported_last()}"
            for reader in (self, *others):
                reader.turn()

    def _reported_last(self) -> str:
        return "\n".join(str(event)[:300] for event in self.journal[-20:])

    def join(self, *topics: str) -> Reader:
        """Subscribe and wait for the first partitions."""
        self.source.subscribe(topics, self)
        self.until(lambda: self.held)
        return self

    def read(self, name: TopicPartition, count: int, *others: Reader) -> list[int]:
        """Wait until ``count`` records of a partition were read, and return all their offsets."""
        self.until(lambda: len(self.records.get(name, ())) >= count, *others)
        return self.offsets(name)

    def offsets(self, name: TopicPartition) -> list[int]:
        return [message.offset() or 0 for message in self.records.get(name, ())]

    # ---- commits

    def commit(self, *commits: Commit) -> list[CommitFailedError | None]:
        """Send commits and return their answers."""
        before = {each.name: len(self.answers.get(each.name, ())) for each in commits}
        self.source.commit(commits)
        self.until(lambda: all(len(self.answers.get(n, ())) > was for n, was in before.items()))
        return [self.answers[each.name][-1] for each in commits]

    def reported(self, what: str) -> list[frozenset[TopicPartition]]:
        """Return the reports of one kind to this reader."""
        return [about for name, kind, about in self.journal if (name, kind) == (self.name, what)]
