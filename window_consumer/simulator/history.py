"""The history of a simulation: every record and assignment, and each broken promise.

It knows what crosses the borders, not the Engine's state. Watches of calls, copies and commits
judge by it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from window_consumer.engine.commits.commit_metadata import decode
from window_consumer.engine.offsets import after
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.retry_topics import RetryTopicLevel
from window_consumer.model.protocols import CommittedOffset
from window_consumer.model.record import Message, TopicPartition
from window_consumer.simulator.log_history import KnownRecord, Lane, LogLedger, Member, Tenure
from window_consumer.simulator.schedule import GROUP, SchedulePlan
from window_consumer.testing.events import Ended, Event, Produced, Result
from window_consumer.testing.fakes.broker import FakeBroker
from window_consumer.testing.fakes.log import FakeLog, FakeMessage

BeginWatch = Callable[[Tenure, Tenure | None, CommittedOffset], None]


class SimulationHistory:
    """Everything that happened, and each broken promise. Owner: one thread."""

    def __init__(
        self,
        plan: SchedulePlan,
        broker: FakeBroker,
        now: Callable[[], float],
        wall_ms: Callable[[], float],
        retry_levels: Mapping[str, RetryTopicLevel],
    ):
        self.plan = plan
        self.broker = broker
        self.now = now
        self.wall_ms = wall_ms
        self.retry_levels = retry_levels
        """The existing retry topics."""
        self.violations: list[str] = []
        self.trace: list[str] | None = None
        """What happened, in words; None if nobody reads it."""
        self.events: list[Event] = []
        self.ledgers: dict[FakeLog, LogLedger] = {}
        self.catch_up: Callable[[], None] = lambda: None
        """Makes the commit watch process the broker's recent commits."""
        self.begins: BeginWatch = lambda _tenure, _before, _committed: None
        """Shows a new assignment and its member's previous one to the watch of lost partitions."""
        self._records: dict[int, KnownRecord] = {}
        self._tenures: dict[Partition, Tenure] = {}
        self._latest: dict[tuple[Member, TopicPartition], Tenure] = {}
        self._again: set[tuple[Member, TopicPartition]] = set()
        """Partitions that a member begins again after an aborted transaction: no process has
        ended."""
        self._known_partitions: dict[str, int] = {}
        """How many partitions each topic had when the group first committed something."""
        self._out_of_range: set[tuple[Member, TopicPartition]] = set()
        """Members and partitions whose next assignment starts by the rule for offsets out of
        range.
        """

    def record(self, text: str) -> None:
        """Record an event; callers check ``trace`` before they format the text."""
        if self.trace is not None:
            self.trace.append(f"{self.now():9.4f} {text}")

    def violate(self, text: str) -> None:
        """Record a broken promise."""
        self.violations.append(text)
        self.record(f"VIOLATION: {text}")

    # ---- records

    def ledger(self, log: FakeLog) -> LogLedger:
        """Return the ledger of a log."""
        ledger = self.ledgers.get(log)
        if ledger is None:
            ledger = self.ledgers[log] = LogLedger(log)
        return ledger

    def produced(
        self,
        log: FakeLog,
        message: FakeMessage,
        *,
        poison: bool,
        deadly: bool = False,
        copy_of: KnownRecord | None = None,
        put_back: bool = False,
    ) -> KnownRecord:
        """Record that a record was written; ``put_back`` marks a redriven dead letter."""
        ledger = self.ledger(log)
        offset = message.offset()
        hop = self.retry_level(log.name).hop_of(message)
        written_ms = self.wall_ms()
        record = KnownRecord(ledger, message, hop, written_ms, poison=poison, copy_of=copy_of)
        record.redrives += put_back
        record.deadly = deadly
        ledger.records[offset] = self._records[id(message)] = record
        key = message.key()
        self.events.append(
            Produced(
                self.topic_of(ledger),
                log.name.partition,
                offset,
                None if key is None else key.decode(),
                f"{id(log)}/{offset}",
            )
        )
        return record

    def excuse(self, ledger: LogLedger, below: int, why: str) -> None:
        """Excuse the records below an offset from being handled."""
        for offset, record in ledger.records.items():
            if offset < below:
                record.excused = True
        self.record(f"{ledger.log.name}: records below {below} need not be handled: {why}")

    def sweep(self, ledger: LogLedger) -> None:
        """Excuse the records that a log no longer holds."""
        there = {message.offset() for message in ledger.log.messages}
        for offset, record in ledger.records.items():
            record.excused = record.excused or offset not in there

    def cut(self, log: FakeLog, end: int) -> None:
        """Record a truncation: offsets from the new end up to ``end`` are used again."""
        ledger = self.ledger(log)
        ledger.excused_below = max(ledger.excused_below, end)
        ledger.records = {o: each for o, each in ledger.records.items() if o < log.end}
        ledger.durable = {o for o in ledger.durable if o < log.end}
        ledger.doubtful = {o for o in ledger.doubtful if o < log.end}
        self.record(f"{log.name} is truncated from {end} to {log.end}")

    def topic_of(self, ledger: LogLedger) -> str:
        """Return a name for a log's topic that differs for a recreated one."""
        return f"{ledger.log.name.topic}#{list(self.ledgers).index(ledger.log)}"

    # ---- assignments

    def tenure(self, member: Member, name: TopicPartition) -> Tenure | None:
        """Return the assignment that a member's Engine has of a partition."""
        partition = member.engine.partitions.get(name)
        if partition is None:
            return None
        return self.tenure_of(member, partition)

    def tenure_of(self, member: Member, partition: Partition) -> Tenure:
        """Return the record of one of the Engine's assignments."""
        tenure = self._tenures.get(partition)
        if tenure is None:
            tenure = self._begin(member, partition)
        return tenure

    def latest(self, member: Member, name: TopicPartition) -> Tenure | None:
        """Return a member's last assignment of a partition, released or not."""
        return self.tenure(member, name) or self._latest.get((member, name))

    def _begin(self, member: Member, partition: Partition) -> Tenure:
        self.catch_up()
        name = partition.name
        ledger = self.ledger(self.broker.log(*name))
        committed = self.broker.group(GROUP).committed(name)
        note = decode(committed.metadata)
        if note and note.finished:
            ledger.check_ranges(note)
        again = (member, name) in self._again
        self._again.discard((member, name))
        if note and note.suspect in ledger.records and not (note.clean or again):
            ledger.records[note.suspect].named_ends += 1
        tenure = Tenure(member, partition, ledger)
        is_source = name.topic not in self.retry_levels
        if committed.next_offset is None and is_source and self.plan.on_no_offset == "latest":
            self._excuse_as_latest(tenure)
        if (member, name) in self._out_of_range or tenure.start < (committed.next_offset or 0):
            tenure.restarted = True
            tenure.durable.clear()
        self._out_of_range.discard((member, name))
        self.begins(tenure, self._latest.get((member, name)), committed)
        self._tenures[partition] = self._latest[member, name] = tenure
        if self.trace is not None:
            self.record(
                f"{member} begins {name} at {tenure.start}, committed {committed.next_offset}"
            )
        return tenure

    def begins_again(self, member: Member, names: Iterable[TopicPartition]) -> None:
        """Record that a member itself begins partitions again."""
        self._again.update((member, name) for name in names)

    def given_up(self, member: Member, names: Iterable[TopicPartition]) -> None:
        """Record that a member releases partitions for good."""
        self._again.difference_update((member, name) for name in names)

    def sought(self, member: Member, name: TopicPartition, offset: int) -> None:
        """Record that a member continues to read at another offset."""
        if self.trace is not None:
            self.record(f"{member} seeks {name} to {offset}")
        if member.source.is_out_of_range(name):
            if name not in member.engine.partitions:
                self._out_of_range.add((member, name))
            if self.plan.on_out_of_range == "latest" and name.topic not in self.retry_levels:
                self.excuse(self.ledger(self.broker.log(*name)), offset, "latest")

    def _only_others_committed(self, topic: str) -> bool:
        """Return whether no commit of a topic records its number of partitions."""
        group, count = self.broker.group(GROUP), self.broker.topics.partitions(topic)
        found = (group.committed(TopicPartition(topic, partition)) for partition in range(count))
        return all(decode(each.metadata) is None for each in found)

    def _excuse_as_latest(self, tenure: Tenure) -> None:
        """Excuse records from before the group, except in new partitions."""
        topic = tenure.name.topic
        if self._only_others_committed(topic):
            self._known_partitions[topic] = self.broker.topics.partitions(topic)
        if tenure.name.partition < self._known_partitions.get(topic, 0):
            self.excuse(tenure.ledger, tenure.start, "latest")

    def delivered(self, member: Member, name: TopicPartition, messages: Sequence[Message]) -> None:
        """Record the messages that a Source delivers to its member."""
        tenure = self.tenure(member, name)
        if self.trace is not None:
            self.record(f"{member} gets {name} {_listed(m.offset() or 0 for m in messages)}")
        if tenure is None or not tenure.partition.is_assigned:
            return
        for message in messages:
            offset = message.offset() or 0
            if offset < tenure.next_offset:
                continue
            tenure.next_offset = after(offset)
            record = self._records[id(message)]
            tenure.delivered[offset] = record
            lane = self.lane_of(message)
            parks = self.plan.parks
            has_own_order = parks and name.topic in self.retry_levels
            in_line = not (record.reborn or has_own_order or self.is_stray(name, record))
            if lane is not None and offset not in tenure.durable and in_line:
                tenure.lines.setdefault(lane, deque()).append(offset)

    def is_stray(self, name: TopicPartition, record: KnownRecord) -> bool:
        """Return whether a copy is in the wrong partition of its topic."""
        number = record.hop.origin.partition
        exists = number < self.broker.topics.partitions(name.topic)
        is_ordered = self.plan.engine.ordering != "unordered"
        return (
            is_ordered and name.topic in self.retry_levels and number != name.partition and exists
        )

    def is_member(self, member: Member) -> bool:
        """Return whether the group still counts a member or has evicted it."""
        return self.broker.group(GROUP).has(member.source)

    def lane_of(self, message: Message) -> Lane | None:
        """Return a record's lane; None if it is unordered."""
        ordering = self.plan.engine.ordering
        if ordering == "partition":
            return "partition"
        return message.key() if ordering == "key" else None

    def record_of(self, tenure: Tenure, message: Message) -> KnownRecord:
        """Return a record that was delivered in an assignment."""
        return tenure.delivered.get(message.offset() or 0) or self._records[id(message)]

    def retry_level(self, name: TopicPartition) -> RetryTopicLevel:
        """Return the level of a partition's topic; without one for a source."""
        return self.retry_levels.get(name.topic) or RetryTopicLevel(name.topic)

    # ---- outcomes

    def ended(
        self,
        tenure: Tenure,
        ledger: LogLedger,
        offset: int,
        lane: Lane | None,
        result: Result,
        attempt: int = 1,
    ) -> None:
        """Record for the guarantees that a call or a record has ended."""
        place = (self.topic_of(ledger), tenure.name.partition, offset)
        text = None if lane is None else str(lane)
        self.events.append(Ended(str(tenure.member), *place, text, self.now(), result, attempt))

    def finished(self, tenure: Tenure, offset: int) -> None:
        """Record a final outcome in an assignment."""
        tenure.final.add(offset)
        record = tenure.delivered.get(offset)
        if record is not None:
            record.handled = True

    def dropped(self, tenure: Tenure, record: KnownRecord) -> None:
        """Record that a record was dropped without a call: the process ended on it too often."""
        offset = record.message.offset()
        self.finished(tenure, offset)
        self.ended(tenure, record.ledger, offset, None, "dropped")

    def has_crashed(self, record: KnownRecord) -> bool:
        """Return whether the process ended on a record as often as it may."""
        return record.named_ends >= self.plan.engine.retry.crash_attempts

    def is_over(self, tenure: Tenure, offset: int) -> bool:
        """Return whether a record is finished; a crashed one may be dropped silently."""
        if tenure.is_over(offset):
            return True
        record = tenure.delivered.get(offset)
        if self.plan.engine.retry.when_spent != "drop" or record is None:
            return False
        return self.has_crashed(record)


def _listed(offsets: Iterable[int]) -> str:
    return " ".join(map(str, offsets))
