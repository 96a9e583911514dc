"""A worker: one configured subscription with its poll thread, its windows and its pool."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from time import perf_counter, sleep, time_ns
from typing import Any

from attrs import evolve, field, frozen

from window_consumer.engine.commits.broadcast import Broadcast, HandledPosition
from window_consumer.engine.commits.lost_partitions import KeptOutcomes
from window_consumer.engine.commits.start_offset import OnNoOffset
from window_consumer.engine.counters import Counters
from window_consumer.engine.decisions import EngineRules
from window_consumer.engine.engine import Engine, MakeEngine
from window_consumer.engine.guards.pause_rule import PauseRule
from window_consumer.engine.latency_histogram import Histogram
from window_consumer.engine.observer import Observer, Observers
from window_consumer.engine.retry.copy_record import CopyMaker, CopyOrigin, Target
from window_consumer.engine.retry.policy import Jitter
from window_consumer.engine.retry.retry_topics import Level, RetryTopicLevel
from window_consumer.engine.scheduling.outlived_calls import OutlivedCall
from window_consumer.engine.turn import TurnRule
from window_consumer.model.log_events import LogEvent
from window_consumer.model.outcome import OUTCOMES, counters
from window_consumer.model.protocols import Clock, Sink, Source
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.call_log import what_follows
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.calls.steps import Called
from window_consumer.runtime.context import LoggableKey, RecordOwner
from window_consumer.runtime.error_report import ErrorReports
from window_consumer.runtime.figures.inspection import Inspection
from window_consumer.runtime.figures.stack_dump import CallPositions, ChildPicture
from window_consumer.runtime.figures.worker_snapshot import Phase, WorkerSnapshot
from window_consumer.runtime.log import own_logger
from window_consumer.runtime.manual_interventions import ManualInterventions
from window_consumer.runtime.outlet import Outlet, SeparateWrites
from window_consumer.runtime.partitions.assignments import Assignments
from window_consumer.runtime.partitions.broadcast_offsets import (
    BroadcastBegin,
    BroadcastOffsets,
    CatchUp,
)
from window_consumer.runtime.partitions.offset_reset import OffsetResets, OnOutOfRange
from window_consumer.runtime.partitions.preparation import PartitionPreparation
from window_consumer.runtime.partitions.start_offsets import CommittedStartOffsets, StartOffsets
from window_consumer.runtime.poll_loop import LoopRules, PollLoop, PollLoopParts
from window_consumer.runtime.pools.leases import Leases
from window_consumer.runtime.pools.pool import (
    MakePool,
    PoolParts,
    PoolWithChildren,
    PoolWithEventLoop,
    PoolWithLeases,
)
from window_consumer.runtime.pools.registry import DEFAULT
from window_consumer.runtime.publisher import Publisher
from window_consumer.runtime.topic_watch import Ask, AskEnds, TopicNews, TopicWatch
from window_consumer.runtime.transactions import (
    EndTransactions,
    TransactionalSink,
    TransactionOutlet,
)
from window_consumer.runtime.worker_log import WorkerLog

_CLOSE_S = 1.0


class SystemClock:
    """The clock of this process."""

    def now(self) -> float:
        """Return seconds of the performance counter."""
        return perf_counter()

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` of time pass."""
        sleep(seconds)

    def wall_ms(self) -> int:
        """Return milliseconds since 1970."""
        return time_ns() // 1_000_000


@frozen
class WorkerSetup:
    """Everything that defines a worker except its connections."""

    name: str
    origin: CopyOrigin
    engine: EngineRules
    loop: LoopRules
    handler: Called
    """Within its layers. It gets lists of records where the Engine's rules say so."""
    target_of: Callable[[str, Level | None], Target]
    """Returns the topic for copies of a source topic's records: a level's, or the dead-letter topic
    for None."""
    ask_topics: Ask
    """Returns the topics to read. Called every few seconds on a separate thread."""
    ask_ends: AskEnds = lambda _names: {}
    """Returns the log ends of partitions that are not fetched. Called on the same thread."""
    retry_levels: Mapping[str, RetryTopicLevel] = field(factory=dict)
    """The retry topics to read. ``ask_topics`` adds those found later."""
    on_no_offset: OnNoOffset = "earliest"
    on_out_of_range: OnOutOfRange = "fail"
    faults: ErrorReports = field(factory=ErrorReports)
    """Describes what handlers raise."""
    loggable_key: LoggableKey = lambda _, key: key
    """Masks keys for the log."""
    logger: logging.Logger = field(factory=own_logger)
    clock: Clock = field(factory=SystemClock)
    is_async: bool = False
    """The handler is a coroutine function, so ``make_pool`` must return a pool that runs
    coroutines."""
    make_engine: MakeEngine = Engine
    broadcast_begin: BroadcastBegin = "latest"
    """Where a worker begins that reads all partitions, without a group."""
    make_pool: MakePool = field(factory=lambda: DEFAULT.make(PoolParts()))
    make_queue: Callable[[], SimpleQueue[Any]] = SimpleQueue
    """Replaceable, like ``make_pool``: the test kit runs everything on one thread."""
    jitter: Jitter = random.random
    observers: tuple[Observer, ...] = ()
    """Receive the events of records."""
    turn_rules: tuple[TurnRule, ...] = ()
    """Say which records are not called at their turn."""
    pause_rules: tuple[PauseRule, ...] = ()
    """May pause the worker until a user resumes it."""
    preparations: tuple[PartitionPreparation, ...] = ()
    """Make ready what a partition needs before it starts."""


def is_ready(loop: PollLoop) -> bool:
    """Return whether a worker has its partitions, perhaps none, and need not catch up first."""
    in_group = loop.phase is Phase.RUNNING and loop.ownership.in_group
    return in_group and loop.catching_up is None


@frozen
class LeftBehind:
    """The handler calls that still run after a worker has ended, for its successor."""

    calls: Sequence[OutlivedCall] = ()
    """Those that keep lanes busy."""
    completions: Sequence[SimpleQueue[Any]] = ()
    """Where their slots report them when they have ended."""
    handled: Mapping[TopicPartition, HandledPosition] = field(factory=dict)
    """How far partitions were handled of which nothing is committed."""


class Worker:
    """Starts and stops one worker's threads. Any thread may call it."""

    def __init__(
        self,
        setup: WorkerSetup,
        source: Source,
        sink: Sink | TransactionalSink,
        state: Any,
        on_phase: Callable[[Worker, Phase], None],
        predecessor: LeftBehind | None = None,
    ):
        self.setup = setup
        self._sink, self._state, self._tell_phase = sink, state, on_phase
        self._clock = setup.clock
        self._completions = setup.make_queue()
        self._worker_log = WorkerLog(
            setup.name, setup.logger, self._clock.now, setup.loggable_key, setup.origin.handler
        )
        self._engine = setup.make_engine(
            setup.engine,
            setup.jitter,
            setup.retry_levels,
            CopyMaker(setup.origin, setup.target_of).copy,
        )
        self._engine.decide_turns(setup.turn_rules)
        self._engine.obey(setup.pause_rules)
        self._inherits = predecessor or LeftBehind()
        self._engine.inherit(self._inherits.calls)
        self._observers = Observers(setup.observers, self._worker_log.observer_failed)
        if setup.observers:
            self._engine.observe(self._observers)
        whose = RecordOwner(setup.name, setup.origin.handler, setup.loggable_key)
        caller = Caller(setup.handler, setup.faults.failure, setup.faults.stalled, whose)
        self._pool = setup.make_pool(
            setup.name, setup.engine.slots, caller, self._completions, state
        )
        self._writer, outlet = self._outlet(source)
        self._watch = TopicWatch(
            setup.name, setup.ask_topics, self._completions, ask_ends=setup.ask_ends
        )
        catch_up = CatchUp() if isinstance(self._engine.guarantee, Broadcast) else None
        assignments = Assignments(
            source, self._starts(source, catch_up), self._worker_log.warn, setup.preparations
        )
        parts = PollLoopParts(
            source=source,
            engine=self._engine,
            pool=self._pool,
            outlet=outlet,
            completions=self._completions,
            assignments=assignments,
            offset_resets=OffsetResets(
                source,
                self._engine,
                assignments,
                setup.on_out_of_range,
                self._worker_log,
                setup.retry_levels,
            ),
            worker_log=self._worker_log,
            catch_up=catch_up,
            clock=self._clock,
            on_phase=lambda phase: on_phase(self, phase),
            on_paused=self._watch.set_paused,
            inherited=self._inherits.completions,
        )
        self.loop = PollLoop(setup.name, parts, setup.loop)
        self.inspect = Inspection(self.loop.mailbox, source)
        self.interventions = ManualInterventions(self.loop.mailbox, self._worker_log)

    def _starts(self, source: Source, catch_up: CatchUp | None) -> StartOffsets:
        """Return what decides where partitions begin."""
        setup, guarantee = self.setup, self._engine.guarantee
        if isinstance(guarantee, Broadcast) and catch_up is not None:
            guarantee.handled.update(self._inherits.handled)
            begin, handled = setup.broadcast_begin, guarantee.handled
            return BroadcastOffsets(source, begin, handled, catch_up, self._clock)
        kept = KeptOutcomes(
            ordered=setup.engine.ordering != "unordered",
            keeps_finished=guarantee.keeps_finished,
            recalls=guarantee.recalls_lost,
        )
        warn = self._worker_log.warn
        return CommittedStartOffsets(source, setup.on_no_offset, warn, setup.retry_levels, kept)

    def _outlet(self, source: Source) -> tuple[Publisher | EndTransactions, Outlet]:
        """Return what writes, and the thread that waits for the brokers."""
        name, sink, completions = self.setup.name, self._sink, self._completions
        copy_of = self._engine.copy_of
        if not isinstance(sink, TransactionalSink):
            publisher = Publisher(name, sink, completions)
            return publisher, SeparateWrites(source, publisher, copy_of)
        ends = sink.ends(name, sink, completions)
        engine, clock = self._engine, self._clock
        return ends, TransactionOutlet(source, engine, sink.sink, ends, completions, clock, copy_of)

    @property
    def name(self) -> str:
        """The worker's name in the configuration."""
        return self.setup.name

    @property
    def engine(self) -> Engine:
        """The worker's engine, which belongs to the poll thread."""
        return self._engine

    @property
    def counters(self) -> Counters:
        """The worker's counters so far."""
        return self._engine.counters

    @property
    def durations(self) -> Histogram:
        """The durations of the worker's calls so far."""
        return self._engine.durations.histogram()

    @property
    def events_lost(self) -> int:
        """How many times an observer has failed."""
        return self._observers.failures

    def successor(self, source: Source) -> Worker:
        """Return a new worker to start in place of this one, which has ended.

        Its threads and windows are new. Its observers and its Sink stay the same. Keys whose calls
        still run here wait there until these have ended.
        """
        behind = self.left_behind()
        return Worker(self.setup, source, self._sink, self._state, self._tell_phase, behind)

    def left_behind(self) -> LeftBehind:
        """Return the calls that still run; the poll thread must have ended."""
        guarantee = self._engine.guarantee
        handled = guarantee.handled if isinstance(guarantee, Broadcast) else {}
        # Children were killed at the end, and their calls with them.
        if isinstance(self._pool, PoolWithChildren):
            return LeftBehind(handled=handled)
        queues = (*self._inherits.completions, self._completions)
        return LeftBehind(self._engine.outlived.calls, queues, handled)

    def start(self) -> None:
        """Start all threads; the poll thread joins the group."""
        self._pool.start()
        self._writer.start()
        self.loop.thread.start()
        self._watch.start()

    def stop_starting(self) -> None:
        """Let ``start`` raise StartStoppedError while it waits for child processes."""
        if isinstance(self._pool, PoolWithChildren):
            self._pool.stop_starting()

    def stop(self) -> None:
        """Request a drain and return at once."""
        self.loop.stop()

    def leave(self) -> None:
        """Let a drained worker leave its group; return at once."""
        self._watch.stop()
        self.loop.leave()

    def end(self, timeout_s: float) -> bool:
        """Wait for the threads; return False if one of them still runs after ``timeout_s``."""
        self.loop.thread.join(timeout_s)
        running = self._pool.stop(0.0 if self.loop.hangs else _CLOSE_S)
        unacked = self._writer.stop(_CLOSE_S)
        self._watch.end(_CLOSE_S)
        if unacked:
            self._worker_log.warn(
                LogEvent.COPIES_UNACKED,
                f"{unacked} copies or results were not acked; {self._what_follows}",
            )
        return not (running or self.loop.thread.is_alive())

    def deliver(self, news: TopicNews) -> None:
        """Pass topics to the poll thread, as the topic watch does."""
        self._completions.put(news)

    def outline(self) -> WorkerSnapshot:
        """Return the present state without windows, and without asking the poll thread."""
        loop = self.loop
        return WorkerSnapshot(
            name=self.name,
            group=self.setup.origin.group,
            handlers=self.setup.origin.handler.split(","),
            phase=loop.phase.value,
            is_ready=is_ready(loop),
            catching_up=loop.catching_up,
            silent_s=loop.silent_s,
            slots=self.setup.engine.slots,
        )

    def snapshot(self, timeout_s: float = 1.0, *, cells: bool = True) -> WorkerSnapshot:
        """Return the present state; wait for the poll thread.

        Without ``cells`` each window has only its row, which is many times cheaper.
        """
        windows = self.inspect.windows(timeout_s, cells=cells)
        if windows is not None:
            loop = self._pool.event_loop() if isinstance(self._pool, PoolWithEventLoop) else None
            windows = evolve(windows, loop=loop, cannot_write=self.cannot_write)
        return evolve(self.outline(), windows=windows)

    @property
    def cannot_write(self) -> str | None:
        """Why copies and results cannot be written at the moment, None where they can."""
        return self._writer.trouble

    @property
    def leases(self) -> Leases | None:
        """The leases that are its slots; None if it has others."""
        return self._pool.leases if isinstance(self._pool, PoolWithLeases) else None

    def children(self) -> Sequence[ChildPicture]:
        """Return what the child processes are doing; empty where there are none."""
        return self._pool.children() if isinstance(self._pool, PoolWithChildren) else ()

    def places(self, children: Sequence[ChildPicture] | None = None) -> CallPositions:
        """Return the present positions of its calls; pass ``children`` where they are known."""
        if isinstance(self._pool, PoolWithEventLoop):
            return CallPositions(coroutines=self._pool.coroutines())
        return CallPositions(self.children() if children is None else children)

    def log_summary(self) -> None:
        """Log the summary line of the worker."""
        self._worker_log.calls.calm()
        did = self.counters
        # Only if there are any: most workers skip nothing and let nothing expire.
        more = "".join(
            f" {number} {words}," for words, name in _RARE.items() if (number := getattr(did, name))
        )
        produced = f"{did.produced} produced, " if did.produced else ""
        moved = f"{did.moved} moved to retry topics, " if self.setup.engine.retry.levels else ""
        self._worker_log.info(
            LogEvent.WORKER_STOPPED,
            f"stopped: {did.processed} processed, {produced}{did.retried} retried, {moved}"
            f"{did.dead_lettered} dead-lettered,{more} {self.loop.unfinished} unfinished"
            f"{_from_where(self.loop.first_unfinished)}",
            **{name: getattr(did, name) for name in _SUMMARY},
            unfinished=self.loop.unfinished,
        )
        if self.loop.outlived:
            late_s = self.setup.loop.stop_timeout_s
            when = f"after {late_s:g} s" if self.loop.is_late else "when it stopped, known to hang"
            self._worker_log.error(
                LogEvent.CALLS_UNFINISHED,
                f"{self.loop.outlived} calls had not returned {when}; {self._what_follows}",
                calls=self.loop.outlived,
            )

    @property
    def _what_follows(self) -> str:
        return what_follows(repeats=self._engine.guarantee.repeats)


_SUMMARY = ("produced", "retried", *counters(progress=True))
"""The counters that a worker's last line has as fields."""

_RARE = {row.words: row.counter for row in OUTCOMES if row.is_progress and not row.is_common}
"""The counters that it names only where they are not 0, by the word for them."""


def _from_where(first: Sequence[tuple[TopicPartition, int]]) -> str:
    """Name the first unfinished records."""
    if not first:
        return ""
    shown = ", ".join(f"{name}@{offset}" for name, offset in first[:4])
    more = f" and in {len(first) - 4} more partitions" if len(first) > 4 else ""
    return f" (from {shown} on{more})"
