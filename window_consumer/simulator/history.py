"""The history of a simulation: receives every record and call, and detects broken promises.

It judges by what crosses the borders (records delivered, calls begun and ended), not by the
Engine's state. Commits and copies have their own watches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from window_consumer.engine.commit_metadata import decode
from window_consumer.engine.decisions import Outlived
from window_consumer.engine.guards.stuck_calls import Stalled
from window_consumer.engine.offsets import after
from window_consumer.engine.partition import Partition
from window_consumer.engine.partition_state import HoldReason
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.engine.retry.retry_topics import MAX_SKEW_S, Level, RetryTopicLevel
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import (
    NotCalled,
    ProcessDiedError,
    ResultRefusedError,
    RetryLater,
    Skip,
    StalledError,
)
from window_consumer.model.record import Message, TopicPartition
from window_consumer.simulator.log_history import (
    KnownRecord,
    Lane,
    LogLedger,
    Member,
    SimulatedCall,
    Tenure,
    TurnKind,
    due_ms,
    kind_of,
)
from window_consumer.simulator.schedule import GROUP, SchedulePlan
from window_consumer.simulator.watches.kept import KeptWatch
from window_consumer.simulator.watches.outages import Outages
from window_consumer.simulator.watches.pace import PaceWatch
from window_consumer.simulator.watches.poison import PoisonWatch
from window_consumer.testing.events import (
    Ended,
    Event,
    Killed,
    OutlivedLogged,
    Produced,
    Result,
    Started,
)
from window_consumer.testing.fakes.broker import FakeBroker
from window_consumer.testing.fakes.log import FakeLog, FakeMessage

TOLERANCE_S = 1e-9


class SimulationHistory:
    """Everything that happened, and what was wrong with it. Owner: one thread."""

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
        """What happened, in words; None where nobody reads it."""
        self.events: list[Event] = []
        self.ledgers: dict[FakeLog, LogLedger] = {}
        self.catch_up: Callable[[], None] = lambda: None
        """Makes the commit watch process the broker's recent commits."""
        self._records: dict[int, KnownRecord] = {}
        self._batches = 0
        self._running: dict[tuple[TopicPartition, Lane], list[SimulatedCall]] = {}
        """The running calls of all members, by the lane's source partition, and lane."""
        self._tenures: dict[Partition, Tenure] = {}
        self._latest: dict[tuple[Member, TopicPartition], Tenure] = {}
        self._known_partitions: dict[str, int] = {}
        """How many partitions each topic had when the group first committed something."""
        self._out_of_range: set[tuple[Member, TopicPartition]] = set()
        """Members and partitions whose next assignment starts by the rule for offsets out of
        range.
        """
        self.outages = Outages(self)
        self.poison = PoisonWatch(self)
        self.pace = PaceWatch(self)
        self.kept = KeptWatch(self)
        self._outlived: set[tuple[Member, TopicPartition, int]] = set()

    def record(self, text: str) -> None:
        """Record what happens; callers check ``trace`` before they format."""
        if self.trace is not None:
            self.trace.append(f"{self.now():9.4f} {text}")

    def violate(self, text: str) -> None:
        """Record a broken promise."""
        self.violations.append(text)
        self.record(f"VIOLATION: {text}")

    # ---- records

    def ledger(self, log: FakeLog) -> LogLedger:
        """Return what is known of a log."""
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
    ) -> None:
        """Record that a record was written; ``put_back`` marks a redriven dead letter."""
        ledger = self.ledger(log)
        offset = message.offset()
        hop = self._retry_level(log.name).hop_of(message)
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
        """Record a truncation from ``end``: offsets from the new end on are reused."""
        ledger = self.ledger(log)
        ledger.excused_below = max(ledger.excused_below, end)
        ledger.records = {o: each for o, each in ledger.records.items() if o < log.end}
        ledger.durable = {o for o in ledger.durable if o < log.end}
        ledger.doubtful = {o for o in ledger.doubtful if o < log.end}
        self.record(f"{log.name} is cut from {end} to {log.end}")

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
        """Return what is known of one of the Engine's assignments."""
        tenure = self._tenures.get(partition)
        if tenure is None:
            tenure = self._begin(member, partition)
        return tenure

    def latest(self, member: Member, name: TopicPartition) -> Tenure | None:
        """Return the last assignment that a member had of a partition, given up or not."""
        return self.tenure(member, name) or self._latest.get((member, name))

    def _begin(self, member: Member, partition: Partition) -> Tenure:
        self.catch_up()
        name = partition.name
        ledger = self.ledger(self.broker.log(*name))
        committed = self.broker.group(GROUP).committed(name)
        note = decode(committed.metadata)
        if note and note.finished:
            ledger.check_ranges(note)
        if note and note.suspect in ledger.records and not note.clean:
            ledger.records[note.suspect].named_ends += 1
        tenure = Tenure(member, partition, ledger)
        is_source = name.topic not in self.retry_levels
        if committed.next_offset is None and is_source and self.plan.on_no_offset == "latest":
            self._excuse_as_latest(tenure)
        if (member, name) in self._out_of_range or tenure.start < (committed.next_offset or 0):
            tenure.restarted = True
            tenure.durable.clear()
        self._out_of_range.discard((member, name))
        self.kept.begins(tenure, self._latest.get((member, name)), committed)
        self._tenures[partition] = self._latest[member, name] = tenure
        if self.trace is not None:
            self.record(
                f"{member} begins {name} at {tenure.start}, committed {committed.next_offset}"
            )
        return tenure

    def sought(self, member: Member, name: TopicPartition, offset: int) -> None:
        """Record that a member continues to read elsewhere."""
        if self.trace is not None:
            self.record(f"{member} seeks {name} to {offset}")
        if member.source.is_out_of_range(name):
            if name not in member.engine.partitions:
                self._out_of_range.add((member, name))
            if self.plan.on_out_of_range == "latest" and name.topic not in self.retry_levels:
                self.excuse(self.ledger(self.broker.log(*name)), offset, "latest")

    def _only_others_committed(self, topic: str) -> bool:
        """Return whether no commit of a topic carries its number of partitions."""
        group, count = self.broker.group(GROUP), self.broker.topics.partitions(topic)
        found = (group.committed(TopicPartition(topic, partition)) for partition in range(count))
        return all(decode(each.metadata) is None for each in found)

    def _excuse_as_latest(self, tenure: Tenure) -> None:
        """Excuse records from before the group, except in new partitions."""
        group, topic = self.broker.group(GROUP), tenure.name.topic
        if not any(each.commit.name.topic == topic for each in group.applied):
            self._known_partitions[topic] = self.broker.topics.partitions(topic)
        knew = tenure.name.partition < self._known_partitions.get(topic, 0)
        if knew or self._only_others_committed(topic):
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
            in_line = not (record.reborn or self.is_stray(name, record))
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

    def lane_of(self, message: Message) -> Lane | None:
        """Return a record's lane; None where it has no order to keep."""
        ordering = self.plan.engine.ordering
        if ordering == "partition":
            return "partition"
        return message.key() if ordering == "key" else None

    # ---- calls

    def claimed(self, member: Member, slice_: Slice, message: Message) -> Tenure:
        """Record that a slot claimed a record; it may claim none of a revoked partition."""
        self.pace.taken(member, slice_, message)
        tenure = self.tenure_of(member, slice_.partition)
        if not tenure.current or not slice_.partition.is_assigned:
            self.violate(
                f"{member} starts {tenure.name}@{message.offset()} of a partition that it gives up"
            )
        # Not when the call begins: by then the Engine may have given up the partition, and with it
        # what it knows of the record.
        self._check_backoff(tenure, message.offset(), attempt_of(slice_))
        return tenure

    def started(self, tenure: Tenure, message: Message, attempt: int) -> SimulatedCall:
        """Record that a handler call begins."""
        record = tenure.delivered.get(message.offset() or 0) or self._records[id(message)]
        return self._started(SimulatedCall(tenure, record, self.lane_of(message), attempt))

    def started_together(
        self, tenure: Tenure, messages: Sequence[Message], attempt: int
    ) -> list[SimulatedCall]:
        """Record a batch handler's call: one simulated call begins for each record."""
        if [m.offset() for m in messages] != sorted(m.offset() for m in messages):
            self.violate(f"{tenure.name}: a batch is not in order: {messages}")
        self._batches += 1
        calls = []
        for message in messages:
            record = tenure.delivered.get(message.offset() or 0) or self._records[id(message)]
            call = SimulatedCall(tenure, record, self.lane_of(message), attempt)
            call.batch = f"batch {self._batches}"
            calls.append(call)
        together = {call.offset for call in calls}
        for call in calls:
            self._started(call, together)
        return calls

    def _started(self, call: SimulatedCall, together: Collection[int] = ()) -> SimulatedCall:
        """Record that a call begins, in one batch with these offsets."""
        tenure, attempt = call.tenure, call.attempt
        if self.trace is not None:
            self.record(f"{tenure.member} calls {tenure.name}@{call.offset} attempt {attempt}")
        if call.offset not in tenure.abandoned:
            self._check_start(call)
        if call.lane is not None:
            self._check_lane(call, call.lane, together)
        tenure.running.add(call.offset)
        tenure.attempts[call.offset] = attempt
        self.events.append(
            Started(
                str(tenure.member),
                self.topic_of(call.record.ledger),
                tenure.name.partition,
                call.offset,
                None if call.lane is None else str(call.lane),
                self.now(),
                attempt,
                call.batch,
            )
        )
        return call

    def _check_start(self, call: SimulatedCall) -> None:
        tenure, offset = call.tenure, call.offset
        place = f"{tenure.name}@{offset}"
        if offset not in tenure.delivered:
            self.violate(f"{place} is called but was never delivered to {tenure.member}")
        if offset in tenure.running:
            self.violate(f"{place} is called while its earlier call runs on {tenure.member}")
        if offset in tenure.dropped and self.plan.engine.breaker.enabled:
            tenure.dropped.discard(offset)
            tenure.final.discard(offset)
        if offset in tenure.final:
            self.violate(f"{place} is called again on {tenure.member} after its final outcome")
        if offset in tenure.durable:
            self.violate(f"{place} had finished and was committed, and runs again")
        self.kept.starts(call)
        if call.attempt != tenure.attempts.get(offset, 0) + 1:
            before = tenure.attempts.get(offset, 0)
            self.violate(f"{place} is called as attempt {call.attempt} after {before}")
        if HoldReason.CRASH_SUSPECTS in tenure.partition.holds and not call.at_turn:
            self._check_name(call)
        self._check_turn(call)
        level = self._retry_level(tenure.name).level
        if level is not None and self.wall_ms() < self._due_ms(call.record, level) - 1:
            self.violate(f"{place} is called before it is due")

    def _check_backoff(self, tenure: Tenure, offset: int, attempt: int) -> None:
        if self.now() < self._not_before(tenure, offset, attempt) - TOLERANCE_S:
            self.violate(f"{tenure.name}@{offset} is called again before its backoff is over")

    def _check_turn(self, call: SimulatedCall) -> None:
        """Check that a rule about its turn lets a record be called now."""
        share = self.plan.handlers.turns
        kind = kind_of(call.record.hop, share) if share else None
        place = f"{call.tenure.name}@{call.offset}"
        if kind is TurnKind.HOLD and self.wall_ms() < due_ms(call.record) - 1:
            self.violate(f"{place} is called before its time")
        elif kind not in (None, TurnKind.HOLD) and not call.at_turn:
            self.violate(f"{place} is called although it ends at its turn")

    def _check_name(self, call: SimulatedCall) -> None:
        """Check that a record started alone is named in a commit."""
        tenure = call.tenure
        if self.broker.topics.log(tenure.name) is not tenure.ledger.log:
            return  # the topic was recreated, and the commits of the old one are gone
        if not self.broker.group(GROUP).has(tenure.member.source):
            return  # it was evicted, cannot know it yet, and a new owner has committed since
        note = decode(self.broker.group(GROUP).committed(tenure.name).metadata)
        if note is None or note.suspect != call.offset:
            self.violate(f"{tenure.name}@{call.offset} is started alone before a commit names it")
        # An abandoned call may run beside it: a thread cannot be stopped.
        others = tenure.running - tenure.abandoned
        if others:
            self.violate(f"{tenure.name}@{call.offset} is not alone: {others} run")

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

    def _check_lane(self, call: SimulatedCall, lane: Lane, together: Collection[int] = ()) -> None:
        tenure = call.tenure
        line = tenure.lines.get(lane)
        while line and self.is_over(tenure, line[0]):
            line.popleft()
        in_line = call.offset not in tenure.abandoned and not call.record.reborn
        first = line[0] if line else call.offset
        if together and line:
            # Earlier records of the lane are in the batch, too, or were, and are leaving.
            first = next(
                (
                    offset
                    for offset in line
                    if offset >= call.offset
                    or (
                        not (offset in together or self.is_over(tenure, offset))
                        and not (call.attempt > 1 and offset in tenure.leaving)
                    )
                ),
                call.offset,
            )
        if tenure.current and first != call.offset and in_line:
            self.violate(
                f"{tenure.name}@{call.offset} of lane {lane!r} is called although {first} is not"
                " over"
            )
        running = self._calls_of(call, lane)
        for other in running:
            if call.batch is not None and call.batch == other.batch:
                continue
            is_known = other.tenure.member is tenure.member
            if is_known or not (self._may_overlap(other) or self._may_overlap(call)):
                self.violate(
                    f"{tenure.name}@{call.offset} of lane {lane!r} is called on {tenure.member}"
                    f" while {other.offset} runs on {other.tenure.member}"
                )
        running.append(call)

    def _may_overlap(self, call: SimulatedCall) -> bool:
        """Return whether a call was given up and logged, or its member cannot know yet."""
        tenure = call.tenure
        if (tenure.member, tenure.name, call.offset) in self._outlived:
            return True
        if not self.broker.group(GROUP).has(tenure.member.source):
            self.events.append(_logged(self.topic_of(call.record.ledger), call))
            return True
        return False

    def ended(self, call: SimulatedCall, error: Exception | None, *, is_open: bool = False) -> None:
        """Record that a call has ended; ``is_open``: its results must be acked first."""
        tenure = call.tenure
        tenure.running.discard(call.offset)
        if isinstance(error, NotCalled) and call.offset not in tenure.abandoned:
            tenure.attempts[call.offset] -= 1
        if call.lane is not None:
            self._calls_of(call, call.lane).remove(call)
        result = self._result(call, error)
        counts = tenure.current and call.offset not in tenure.abandoned
        self.outages.ended(call, result)
        self.poison.ended(call, result)
        if self.trace is not None:
            late = "" if counts else " (late)"
            self.record(f"{tenure.member} ends {tenure.name}@{call.offset}: {result}{late}")
        self.events.append(
            Ended(
                str(tenure.member),
                self.topic_of(call.record.ledger),
                tenure.name.partition,
                call.offset,
                None if call.lane is None else str(call.lane),
                self.now(),
                "failed" if is_open or not (counts or error is None) else result,
                call.attempt,
            )
        )
        if counts and not is_open:
            self._conclude(call, error, result)

    def _conclude(self, call: SimulatedCall, error: Exception | None, result: Result) -> None:
        tenure = call.tenure
        if result == "failed":
            tenure.last_failures[call.offset] = (self.now(), error, _spared(tenure, call.offset))
        elif result == "spent":
            tenure.leaving.add(call.offset)
        else:
            self.finished(tenure, call.offset)
            if result == "dropped":
                tenure.dropped.add(call.offset)

    def interrupted(self, call: SimulatedCall) -> None:
        """Record that a call was ended with its partition; its record stays open."""
        tenure = call.tenure
        tenure.running.discard(call.offset)
        if call.lane is not None:
            self._calls_of(call, call.lane).remove(call)
        self.outages.ended(call, "failed")
        self.record(f"{tenure.member} has ended the call for {tenure.name}@{call.offset}")
        self.events.append(
            Ended(
                str(tenure.member),
                self.topic_of(call.record.ledger),
                tenure.name.partition,
                call.offset,
                None if call.lane is None else str(call.lane),
                self.now(),
                "failed",
                call.attempt,
            )
        )

    def died(self, calls: Sequence[SimulatedCall]) -> None:
        """Record that a slot's process died on these calls.

        A single call is to blame. Of several none is charged, as the cause is unknown.
        """
        if len(calls) == 1:
            (call,) = calls
            deaths = call.tenure.deaths
            deaths[call.offset] = deaths.get(call.offset, 0) + 1
            self.ended(call, ProcessDiedError("died"))
            return
        for call in calls:
            self.interrupted(call)
            call.tenure.attempts[call.offset] -= 1

    def ended_together(
        self, calls: Sequence[SimulatedCall], errors: Sequence[Exception | None]
    ) -> None:
        """Record the end of a batch handler's call, with the result of each record.

        All records of a lane that are retried wait as long as the first of them. Where a lane
        blocks, all behind that one are called again.
        """
        firsts: dict[Lane, Exception] = {}
        for call, error_of in zip(calls, errors, strict=True):
            error = error_of
            retry = call.tenure.member.rules.retry
            again = error_of is not None and not (
                isinstance(error_of, (Skip, NotCalled)) or retry.is_fatal(error_of)
            )
            if call.lane is not None:
                if call.lane in firsts and (again or retry.on_failure == "block"):
                    error = firsts[call.lane]
                elif again and error_of is not None:
                    firsts.setdefault(call.lane, error_of)
            self.ended(call, error)

    def ended_at_turn(self, tenure: Tenure, message: Message, error: Exception) -> None:
        """Record that a rule has ended a record at its turn, as a call would that raises this."""
        offset = message.offset()
        attempt = tenure.attempts.get(offset, 0) + 1
        call = SimulatedCall(tenure, tenure.delivered[offset], self.lane_of(message), attempt)
        call.at_turn = True
        self.ended(self._started(call), error)

    def acked(self, call: SimulatedCall) -> None:
        """Record that all results of a call are acked: its record is done."""
        self._conclude(call, None, "done")
        self._after_results(call, "done")

    def refused(self, call: SimulatedCall) -> None:
        """Record that a result was refused for good: the call counts as failed."""
        error = ResultRefusedError("made to be refused")
        result = self._result(call, error)
        self.outages.ended(call, result)
        self.poison.ended(call, result)
        self._conclude(call, error, result)
        if result in ("dropped", "spent"):
            self._after_results(call, result)

    def _after_results(self, call: SimulatedCall, result: Result) -> None:
        """Record for the guarantees that a record ended some time after its call."""
        tenure = call.tenure
        lane = None if call.lane is None else str(call.lane)
        place = (self.topic_of(call.record.ledger), tenure.name.partition, call.offset)
        now = self.now()
        self.events.append(Ended(str(tenure.member), *place, lane, now, result, call.attempt))

    def abandoned(self, member: Member, stalled: Stalled) -> None:
        """Record that a member abandons a stuck call; its record or batch leaves."""
        for message in stalled.slice_.messages if stalled.slice_.is_batch else ():
            self._abandoned(member, stalled, message)
        if not stalled.slice_.is_batch:
            self._abandoned(member, stalled, stalled.slice_.messages[-1])

    def _abandoned(self, member: Member, stalled: Stalled, message: Message) -> None:
        tenure = self.tenure_of(member, stalled.slice_.partition)
        offset: int = message.offset()
        self.record(f"{member} abandons the call for {tenure.name}@{offset}")
        # A slot may have claimed it without beginning the call, which then begins later.
        tenure.attempts[offset] = attempt_of(stalled.slice_)
        tenure.abandoned.add(offset)
        retry = tenure.member.rules.retry
        level = self._retry_level(tenure.name).level
        if retry.when_spent == "drop" and not _further(retry, level):
            self.finished(tenure, offset)
            self._dropped(tenure, stalled, message)
        else:
            tenure.leaving.add(offset)

    def _dropped(self, tenure: Tenure, stalled: Stalled, message: Message) -> None:
        """Record for the guarantees that a record ended although its call continues."""
        lane = self.lane_of(message)
        self.events.append(
            Ended(
                str(tenure.member),
                self.topic_of(tenure.ledger),
                tenure.name.partition,
                message.offset(),
                None if lane is None else str(lane),
                self.now(),
                "dropped",
                stalled.slice_.call.attempt,
            )
        )

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
        place = (self.topic_of(record.ledger), tenure.name.partition, offset)
        self.events.append(Ended(str(tenure.member), *place, None, self.now(), "dropped"))

    def _result(self, call: SimulatedCall, error: Exception | None) -> Result:
        retry = call.tenure.member.rules.retry
        if error is None or isinstance(error, Skip):
            return "done" if error is None else "skipped"
        stalled = isinstance(error, StalledError)
        if isinstance(error, ProcessDiedError):
            is_spent = call.tenure.deaths[call.offset] >= retry.crash_attempts
            left: Result = "dropped" if retry.when_spent == "drop" else "spent"
            return left if is_spent else "failed"
        if isinstance(error, NotCalled) or (retry.is_fatal(error) and not stalled):
            end = error.end if isinstance(error, NotCalled) else retry.when_spent
            return "dropped" if end == "drop" else "spent"
        level = self._retry_level(call.tenure.name).level
        further = _further(retry, level)
        allowed = retry.attempts if level is None else retry.attempts_per_level
        waits_long = isinstance(error, RetryLater) and error.after_s > retry.backoff_max_s
        if retry.on_failure == "block":
            return "failed"
        if call.attempt < allowed and not (waits_long and further) and not stalled:
            return "failed"
        return "dropped" if retry.when_spent == "drop" and not further else "spent"

    def _retry_level(self, name: TopicPartition) -> RetryTopicLevel:
        return self.retry_levels.get(name.topic) or RetryTopicLevel(name.topic)

    def _calls_of(self, call: SimulatedCall, lane: Lane) -> list[SimulatedCall]:
        """Return the running calls of a lane, whose records may be in several topics."""
        return self._running.setdefault((call.record.hop.origin, lane), [])

    def _due_ms(self, record: KnownRecord, level: Level) -> float:
        """Return when a copy may be called: as its header says, within the clocks' tolerance."""
        not_before = record.hop.not_before or 0
        return min(not_before, record.written_ms + (level.delay_s + MAX_SKEW_S) * 1000)

    def _not_before(self, tenure: Tenure, offset: int, attempt: int) -> float:
        """Return when a record may be called again, after its last failure at the earliest.

        Calls that the breaker did not charge do not make the backoff longer: before any charged
        one it is half of the shortest. A record whose last attempt was charged is called at once
        when the breaker pardons it.
        """
        if offset not in tenure.last_failures:
            return 0.0
        retry = self.plan.engine.retry
        failed_at, error, spared_before = tenure.last_failures[offset]
        if isinstance(error, RetryLater):
            return failed_at + min(error.after_s, retry.backoff_max_s)
        spared = _spared(tenure, offset)
        charged = attempt - 1 - spared
        is_spent = charged >= retry.allowed(tenure.partition.retry_level.level)
        if self.plan.engine.breaker.enabled and is_spent and spared == spared_before:
            return failed_at
        ceiling = min(retry.backoff_min_s * 2.0 ** (charged - 1), retry.backoff_max_s)
        return failed_at + 0.75 * ceiling

    # ---- members

    def reported(self, member: Member, calls: Iterable[Outlived]) -> None:
        """Record the calls that a member logged as outlived."""
        for call in calls:
            self._outlived.add((member, call.name, call.offset))
            self.record(f"{member} reports {call.name}@{call.offset} as outlived")
            tenure = self._latest.get((member, call.name))
            record = tenure.delivered.get(call.offset) if tenure is not None else None
            if record is not None:
                topic = self.topic_of(record.ledger)
                self.events.append(OutlivedLogged(topic, call.name.partition, call.offset))

    def gone(self, member: Member) -> None:
        """Record that a member's process has ended, and its calls with it."""
        for running in self._running.values():
            running[:] = [call for call in running if call.tenure.member is not member]
        self.events.append(Killed(str(member), self.now()))


def attempt_of(slice_: Slice) -> int:
    """Return the number of a slice's calls for its records, without those that did not happen."""
    return slice_.call.attempt - slice_.call.uncalled


def _spared(tenure: Tenure, offset: int) -> int:
    """Return how many calls of a record the breaker has not charged, while the Engine knows."""
    partition = tenure.partition
    records = tenure.member.engine.failed_records.of(partition)
    failed = records.get(partition.window.offsets.seq_of(offset))
    return 0 if failed is None else failed.spared


def _further(retry: RetryRules, level: Level | None) -> list[Level]:
    """Return the levels that a record at this level may still reach."""
    return [each for each in retry.levels if level is None or each.delay_s > level.delay_s]


def _logged(topic: str, call: SimulatedCall) -> OutlivedLogged:
    return OutlivedLogged(topic, call.tenure.name.partition, call.offset)


def _listed(offsets: Iterable[int]) -> str:
    return " ".join(map(str, offsets))
