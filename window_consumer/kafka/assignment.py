"""The partitions assigned to a client, their pauses and positions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from window_consumer.model.errors import RunError
from window_consumer.model.record import TopicPartition

HELD_AT = 0
"""The begin offset of a partition that stays paused until a seek; nothing is read there.

It must be a number. With "end", the client would ask the broker for the end offset, and ask again
when it is paused. A late answer overrides a seek made meanwhile (librdkafka 2.16): the partition
would be read from its end, and the records before it would be lost.
"""


class Assignment:
    """The partitions that one client reads. Owner: poll thread."""

    def __init__(self, consumer: Consumer, *, incremental: bool):
        self._consumer = consumer
        self._incremental = incremental
        self.topics: set[str] = set()
        """Topics of all partitions that were ever assigned; nothing else can be delivered."""
        self._begins: dict[TopicPartition, int] = {}
        """Where each partition was last set to begin; the client learns it with the first record.
        """
        self._paused: set[TopicPartition] = set()
        """Partitions that the client does not fetch. It remembers a pause after a partition was
        given up, so the partition is still silent when it is assigned again.
        """
        self.moved: set[TopicPartition] = set()
        """Partitions that were moved or given up since this was last cleared."""
        self._held: set[TopicPartition] = set()
        """Paused partitions that have no begin offset yet."""
        self._problems: dict[TopicPartition, KafkaError] = {}

    @property
    def names(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return list(self._begins)

    def record_problem(self, message: Any, error: KafkaError) -> None:
        """Record why reading cannot continue after the records before this message."""
        name = TopicPartition(message.topic(), message.partition())
        # The log may no longer contain HELD_AT, and the client may request it before it sees the
        # pause. An answer may also arrive after the partition was set to begin elsewhere.
        offset = message.offset()
        is_late = offset is not None and offset < self._begins.get(name, offset)
        if name not in self._held and not is_late:
            self._problems[name] = error

    def take_problems(self) -> dict[TopicPartition, KafkaError]:
        """Return the problems that stop reading, each once."""
        problems, self._problems = self._problems, {}
        return problems

    def _move(self, names: Iterable[TopicPartition]) -> None:
        for name in names:
            self.moved.add(name)
            self._problems.pop(name, None)

    def take(self, names: Sequence[TopicPartition]) -> None:
        """Add new partitions. An eager rebalance names all of them."""
        if not self._incremental:
            self._begins.clear()
        self._begins.update(dict.fromkeys(names, HELD_AT))
        self.topics.update(name.topic for name in names)
        self._move(names)

    def give_up(self, names: Sequence[TopicPartition]) -> None:
        """Remove partitions."""
        for name in names:
            self._begins.pop(name, None)
        self._held.difference_update(names)
        self._move(names)

    def start(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Start reading at these offsets; partitions with None stay paused."""
        begins = {name: HELD_AT if offset is None else offset for name, offset in offsets.items()}
        waiting = [name for name, offset in offsets.items() if offset is None]
        self._held.difference_update(begins)
        self._held.update(waiting)
        self._begins.update(begins)
        self._move(begins)
        known = [name for name, offset in offsets.items() if offset is not None]
        self._wake(self._paused.intersection(known))
        if self._incremental:
            self._consumer.incremental_assign(_at(begins))
        else:
            self._assign(begins)
        if waiting:
            self.pause(waiting)

    def seek(self, name: TopicPartition, offset: int) -> None:
        """Continue reading at this offset, paused or not. Raise RunError if it is not assigned."""
        if name not in self._begins:
            raise RunError(f"{name} cannot be read: it is not assigned")
        self._begins[name] = offset
        self._held.discard(name)
        self._move([name])
        self._wake(self._paused.intersection([name]))
        try:
            self._consumer.seek(ClientPartition(*name, offset))
        except KafkaException:
            # A partition that reads nothing (its position was out of range) cannot seek. It is
            # assigned again, which librdkafka allows at any time.
            self._assign_anew(name, offset)

    def unassign(self, names: Sequence[TopicPartition]) -> None:
        """Stop reading partitions; for readers without a group."""
        self._consumer.incremental_unassign([ClientPartition(*name) for name in names])

    def continue_from(self, before: Assignment) -> None:
        """Take over another client's partitions with their positions and pauses."""
        offsets: dict[TopicPartition, int | None] = {**before._begins}
        offsets.update(before.positions(before.names))
        offsets.update(dict.fromkeys(before._held))
        self.take(before.names)
        self.start(offsets)
        self.pause(list(before._paused))

    def put_back(self, name: TopicPartition, offset: int) -> None:
        """Read a record again that was not delivered."""
        if name in self._begins and name not in self._paused:
            self.seek(name, offset)

    def _assign_anew(self, name: TopicPartition, offset: int) -> None:
        if self._incremental:
            self._consumer.incremental_unassign([ClientPartition(*name)])
            self._consumer.incremental_assign(_at({name: offset}))
        else:
            self._assign({name: offset})

    def _assign(self, begins: Mapping[TopicPartition, int]) -> None:
        """Assign all partitions: the others keep their positions, and paused ones stay paused."""
        others = {name: begin for name, begin in self._begins.items() if name not in begins}
        positions = self.positions(list(others)) if others else {}
        self._consumer.assign(_at({**others, **positions, **begins}))
        if silent := self._paused.intersection(self._begins):
            self._consumer.pause([ClientPartition(*name) for name in silent])

    def _wake(self, names: Collection[TopicPartition]) -> None:
        if names:
            self._paused.difference_update(names)
            self._consumer.resume([ClientPartition(*name) for name in names])

    def pause(self, names: Sequence[TopicPartition]) -> None:
        """Deliver nothing from these partitions; prefetched records are discarded."""
        ours = [name for name in names if name in self._begins]
        self._paused.update(ours)
        self._consumer.pause([ClientPartition(*name) for name in ours])

    def positions(self, names: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the positions of partitions; those not read since they last began are left out."""
        found = self._consumer.position([ClientPartition(*name) for name in names])
        return {
            TopicPartition(each.topic, each.partition): each.offset
            for each in found
            if each.offset >= 0
        }

    def log_ends(self, names: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log ends that the client already knows, without a request."""
        ends = {}
        for name in names:
            _, end = self._consumer.get_watermark_offsets(ClientPartition(*name), cached=True)
            if end >= 0:
                ends[name] = end
        return ends


def _at(offsets: Mapping[TopicPartition, int]) -> list[ClientPartition]:
    return [ClientPartition(*name, offset) for name, offset in offsets.items()]
