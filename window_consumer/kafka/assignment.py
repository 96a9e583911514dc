"""The partitions that a client was assigned: which are paused, and where each is read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from window_consumer.model.errors import RunError
from window_consumer.model.record import TopicPartition

HELD_AT = 0
"""Where a partition begins that is paused until somebody seeks: a number; nothing is read there.

The client would have to ask the broker what the end is, and asks again when it has been told to
pause. What a late answer says wins over a seek that came meanwhile (librdkafka 2.16): the partition
would be read from its end on, and the records before it by nobody.
"""


class Assignment:
    """What one client reads. Owner: poll thread."""

    def __init__(self, consumer: Consumer, *, incremental: bool):
        self._consumer = consumer
        self._incremental = incremental
        self.topics: set[str] = set()
        """Those of all partitions that were ever assigned: nothing else can be delivered."""
        self._begins: dict[TopicPartition, int] = {}
        """Where each was last told to begin: the client knows it only after the first record."""
        self._paused: set[TopicPartition] = set()
        """What the client does not fetch. It remembers that of partitions that were given up: when
        they are dealt to it again they are as silent as before."""
        self.moved: set[TopicPartition] = set()
        """Those that begin elsewhere, or were given up, since this was last cleared."""
        self._held: set[TopicPartition] = set()
        """Those of them that have no place to begin at yet."""
        self._problems: dict[TopicPartition, KafkaError] = {}

    @property
    def names(self) -> list[TopicPartition]:
        """The partitions that are assigned."""
        return list(self._begins)

    def record_problem(self, message: Any, error: KafkaError) -> None:
        """Note what stands in the way of reading on, where the records before it end."""
        name = TopicPartition(message.topic(), message.partition())
        # A log may not have HELD_AT any more, and may be asked for it before the pause is heard of;
        # the answer may come when the partition has been told to begin elsewhere.
        offset = message.offset()
        is_late = offset is not None and offset < self._begins.get(name, offset)
        if name not in self._held and not is_late:
            self._problems[name] = error

    def take_problems(self) -> dict[TopicPartition, KafkaError]:
        """Return the problems of the places where reading stands still, each once."""
        problems, self._problems = self._problems, {}
        return problems

    def _move(self, names: Iterable[TopicPartition]) -> None:
        for name in names:
            self.moved.add(name)
            self._problems.pop(name, None)

    def take(self, names: Sequence[TopicPartition]) -> None:
        """Note new partitions; an eager rebalance names all that there are."""
        if not self._incremental:
            self._begins.clear()
        self._begins.update(dict.fromkeys(names, HELD_AT))
        self.topics.update(name.topic for name in names)
        self._move(names)

    def give_up(self, names: Sequence[TopicPartition]) -> None:
        """Forget partitions."""
        for name in names:
            self._begins.pop(name, None)
        self._held.difference_update(names)
        self._move(names)

    def start(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Begin to read at these offsets; those with None stay paused."""
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
        """Go on reading at this offset, also where it was paused; RunError if it is not ours."""
        if name not in self._begins:
            raise RunError(f"{name} cannot be read: it is not assigned")
        self._begins[name] = offset
        self._held.discard(name)
        self._move([name])
        self._wake(self._paused.intersection([name]))
        try:
            self._consumer.seek(ClientPartition(*name, offset))
        except KafkaException:
            # A partition that reads nothing (its position was out of range) cannot seek: it is
            # assigned anew, which librdkafka allows at any time.
            self._assign_anew(name, offset)

    def put_back(self, name: TopicPartition, offset: int) -> None:
        """Read a record again that nobody has seen."""
        if name in self._begins and name not in self._paused:
            self.seek(name, offset)

    def _assign_anew(self, name: TopicPartition, offset: int) -> None:
        if self._incremental:
            self._consumer.incremental_unassign([ClientPartition(*name)])
            self._consumer.incremental_assign(_at({name: offset}))
        else:
            self._assign({name: offset})

    def _assign(self, begins: Mapping[TopicPartition, int]) -> None:
        """Assign all there are; the others go on where they are, those paused stay so."""
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
        """Deliver nothing of these; what was prefetched is thrown away."""
        ours = [name for name in names if name in self._begins]
        self._paused.update(ours)
        self._consumer.pause([ClientPartition(*name) for name in ours])

    def positions(self, names: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return how far each was read; those not read since they last began are left out."""
        found = self._consumer.position([ClientPartition(*name) for name in names])
        return {
            TopicPartition(each.topic, each.partition): each.offset
            for each in found
            if each.offset >= 0
        }

    def log_ends(self, names: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends of the logs that the client has heard of, without asking anybody."""
        ends = {}
        for name in names:
            _, end = self._consumer.get_watermark_offsets(ClientPartition(*name), cached=True)
            if end >= 0:
                ends[name] = end
        return ends


def _at(offsets: Mapping[TopicPartition, int]) -> list[ClientPartition]:
    return [ClientPartition(*name, offset) for name, offset in offsets.items()]
