"""A simulated member: the real poll loop and Engine on one thread, in a controlled world.

Where the poll loop would wait, the simulation continues instead. So everything that can happen
while a real poll loop waits happens here, too.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable, Sequence
from random import Random

import attrs

from window_consumer.engine.decisions import Outlived
from window_consumer.engine.observer import Observer, Observers
from window_consumer.engine.retry.copy_record import CopyOrigin, Target
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.retry_topics import RetryTopicLevel
from window_consumer.model.errors import WorkerStoppedError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Copy
from window_consumer.model.record import TopicPartition
from window_consumer.parking.scans import LadderScans
from window_consumer.runtime.call_log import CallLog
from window_consumer.runtime.figures.worker_snapshot import Phase
from window_consumer.runtime.limited_log import LimitedLog
from window_consumer.runtime.partitions.assignments import Assignments
from window_consumer.runtime.partitions.offset_reset import OffsetResets
from window_consumer.runtime.partitions.start_offsets import CommittedStartOffsets
from window_consumer.runtime.poll_loop import PollLoop, PollLoopParts
from window_consumer.runtime.worker_log import WorkerLog
from window_consumer.runtime.writing.outlet import Outlet, SeparateWrites
from window_consumer.runtime.writing.publisher import Publisher
from window_consumer.simulator.completions import Completions
from window_consumer.simulator.fake_processes import FakeProcesses
from window_consumer.simulator.parking import SimulatedParking
from window_consumer.simulator.schedule import GROUP, copy_topic
from window_consumer.simulator.shared import SharedSimulation, WatchedSink, WatchedSource
from window_consumer.simulator.slots import Handler, SteppedSlots
from window_consumer.simulator.transactions import SimulatedTransactions
from window_consumer.simulator.watches.call_rate import RandomConcurrency
from window_consumer.simulator.watches.calls import CallWatch
from window_consumer.simulator.watches.turn import SimulatedTurns

_SILENT = logging.getLogger("window_consumer.simulated")
_SILENT.setLevel(logging.CRITICAL + 1)


class MemberCallLog(CallLog):
    """A member's log of its calls, which reports outlived calls to the history."""

    def __init__(self, log: LimitedLog, member: SimulatedMember, watch: CallWatch):
        super().__init__(log, lambda _, key: key, "")
        self._member = member
        self._watch = watch

    def outlived(self, calls: Iterable[Outlived]) -> None:
        """Record calls that continue although their partition was released."""
        calls = list(calls)
        self._watch.reported(self._member, calls)
        super().outlived(calls)


class MemberListener(WorkerLog):
    """A member's log, which reports warnings and outlived calls to the history."""

    def __init__(self, member: SimulatedMember, scene: SharedSimulation):
        super().__init__(str(member), _SILENT, scene.clock.now)
        self.calls = MemberCallLog(self, member, scene.calls)
        self._member = member
        self._history = scene.history

    def warn(self, event: LogEvent, text: str, **_data: object) -> None:
        """Record a warning."""
        self._history.record(f"{self._member} warns ({event}): {text}")


class WatchedStartOffsets(CommittedStartOffsets):
    """Finds where a member's partitions begin; reports to the history those that begin again."""

    def begin_again(self, names: Sequence[TopicPartition]) -> None:
        """See StartOffsets."""
        source = self._source
        assert isinstance(source, WatchedSource)
        source.begins_again(names)
        super().begin_again(names)


class SimulatedMember:
    """One member of the group: poll loop, Engine, slots, publisher. Owner: one thread."""

    def __init__(
        self,
        name: str,
        scene: SharedSimulation,
        handler: Handler,
        wait: Callable[[SimulatedMember, float], None],
    ):
        plan = scene.plan
        self.name = name
        self.scene = scene
        self.dead = False
        self.on_stack = False
        """It is waiting now and cannot take another turn."""
        self.source = WatchedSource(scene)
        self.sink = (
            SimulatedTransactions(scene, lambda timeout_s: wait(self, timeout_s))
            if plan.is_transactional
            else WatchedSink(scene)
        )
        levels = scene.ladder.levels
        self.rules = attrs.evolve(plan.engine, retry=attrs.evolve(plan.engine.retry, levels=levels))
        """The rules of the configuration that it started with."""
        self.retry_levels: dict[str, RetryTopicLevel] = {}
        """The retry topics that it reads, or has read."""
        self.engine = scene.subject.make_engine(
            self.rules, scene.rng.random, self.retry_levels, self._copy_of
        )
        self.completions = Completions(
            name, self.engine, scene.history, lambda timeout_s: wait(self, timeout_s)
        )
        listeners: list[Observer] = []
        if scene.subject.make_audit is not None:
            listeners += scene.audit.listeners(self, scene.subject.make_audit)
        if plan.handlers.turns:
            self.engine.decide_turns([SimulatedTurns(scene.calls, self)])
        self.scans: LadderScans | None = None
        if plan.parks:
            make = scene.subject
            parking = SimulatedParking(
                self, scene.history, scene.ladder, self.find_topics, scene.copies.order
            )
            self.scans = make.make_scans(parking, lambda _run: None, scene.clock.now)
            rule = make.make_parking(plan.parking, parking.park, self.scans, follows=plan.follows)
            self.engine.decide_turns([rule])
            listeners.append(parking)
        if listeners:
            self.engine.observe(Observers(listeners, self._raised))
        if self.rules.limit is not None:
            rng = Random(scene.rng.getstate()[1][0])
            self.engine.slot_limit.adaptive = RandomConcurrency(
                self.rules.limit, self.rules.slots, rng
            )
        self.slices_out = 0
        """After its last turn."""
        rules = plan.engine
        given = (rules.slots, handler, scene.calls, scene.clock.now)
        self.slots = (
            SteppedSlots(*given, ends=rules.stall.ends)
            if plan.deaths is None
            else FakeProcesses(*given, plan.deaths)
        )
        self.source.owner = self.sink.owner = self.slots.member = self
        reports = MemberListener(self, scene)
        recalls = self.engine.guarantee.recalls_lost
        kept = scene.subject.make_kept(rules.ordering != "unordered" or not recalls)
        assignments = Assignments(
            self.source,
            WatchedStartOffsets(
                self.source, plan.on_no_offset, reports.warn, self.retry_levels, kept
            ),
            reports.warn,
            [] if self.scans is None else [self.scans],
        )
        parts = PollLoopParts(
            source=self.source,
            engine=self.engine,
            pool=self.slots,
            outlet=self._outlet(),
            completions=self.completions,
            assignments=assignments,
            offset_resets=OffsetResets(
                self.source,
                self.engine,
                assignments,
                plan.on_out_of_range,
                reports,
                self.retry_levels,
            ),
            worker_log=reports,
            clock=scene.clock,
            on_phase=lambda _phase: None,
        )
        topics = self.find_topics()
        self.loop = PollLoop(name, parts, attrs.evolve(plan.loop, topics=tuple(topics)))
        self.source.subscribe(topics, self.loop.ownership)

    def __str__(self) -> str:
        return self.name

    def _outlet(self) -> Outlet:
        sink, make = self.sink, self.scene.subject
        copy_of = self.engine.copy_of
        if isinstance(sink, SimulatedTransactions):
            return make.make_transactions(
                self.source, self.engine, sink, sink, self.completions, self.scene.clock, copy_of
            )
        return SeparateWrites(self.source, Publisher(self.name, sink, self.completions), copy_of)

    def find_topics(self) -> list[str]:
        """Return the topics to read, which a real worker finds periodically."""
        read = self.scene.ladder.read_by(self.rules.retry.levels)
        self.retry_levels.update(read)
        return [*self.scene.plan.sources, *read]

    @property
    def largest_batch(self) -> int:
        """The most bytes that one poll has returned."""
        return self.source.largest_batch

    @property
    def is_captive(self) -> bool:
        """Whether it waits within a rebalance or a stop, during which nothing else drives it."""
        return self.source.in_callback or self.loop.phase is Phase.DRAINING

    def turn(self) -> bool:
        """Take one turn of the poll loop; return False if it had to stop."""
        self.on_stack = True
        try:
            if self.scans is not None:
                self.scans.scan_complete()
            self.loop._turn()  # noqa: SLF001 - the loop without its thread
            # Assignments that began late may end before the next poll, at a stop.
            self.source.record_assignment()
        except WorkerStoppedError as error:
            self.scene.history.record(f"{self} stops by itself: {error}")
            self.stop()
        except Exception as error:
            # A real worker would die of any other error.
            place = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{error!r} in {place.name}, line {place.lineno} of {place.filename}"
            self.scene.history.violate(f"{self} dies of a bug: {text}")
        finally:
            self.on_stack = False
        return not self.dead

    def stop(self) -> None:
        """Drain, commit, leave the group and end the process."""
        self.on_stack = True
        self.scene.history.record(f"{self} stops")
        self.loop.stop()
        self.loop.leave()
        self.loop._run()  # noqa: SLF001 - the loop without its thread
        failure = self.loop.failure
        if failure is not None and not isinstance(failure, WorkerStoppedError):
            self.scene.history.violate(f"{self} stopped by a bug: {failure!r}")
        self.sink.close(0.0)
        self._end()

    def kill(self) -> None:
        """End abruptly; the group does not notice it yet."""
        self.scene.history.record(f"{self} is killed")
        self.source.die()
        self._end()

    def _end(self) -> None:
        self.dead = True
        self.scene.calls.gone(self)

    def _raised(self, error: Exception) -> None:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{error!r} in {place.name}, line {place.lineno} of {place.filename}"
        self.scene.history.violate(f"{self}: a listener raises {text}")

    def _copy_of(self, failed: FailedRecord, wall_offset_ms: float) -> Copy:
        if failed.forward is not None:
            copy = failed.forward.copy
            self.scene.copies.made(copy, failed.partition.name, failed.message)
            return copy
        topic = failed.partition.retry_level.source
        partitions = self.scene.broker.topics.partitions
        copies = copy_topic(topic, failed.level)
        target = Target(copies, partitions(copies), partitions(topic))
        make_copy = self.scene.subject.make_copy
        copy = make_copy(failed, CopyOrigin(GROUP, "charge"), target, wall_offset_ms)
        strays = self.scene.plan.strays
        if strays and failed.level is not None and self.scene.rng.random() < strays:
            copy = copy._replace(partition=None)
        self.scene.copies.made(copy, failed.partition.name, failed.message)
        return copy
