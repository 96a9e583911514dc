"""A worker: one configured subscription with its poll thread, its windows and its pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, Final

from attrs import evolve, field, frozen

from window_consumer.engine.commits.broadcast import Broadcast, HandledPosition
from window_consumer.engine.commits.lost_partitions import KeptOutcomes
from window_consumer.engine.counters import Counters
from window_consumer.engine.engine import Engine
from window_consumer.engine.latency_histogram import Histogram
from window_consumer.engine.observer import Observers
from window_consumer.engine.retry.copy_record import CopyMaker
from window_consumer.engine.scheduling.outlived_calls import OutlivedCall
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Sink, Source
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.call_log import what_follows
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.context import RecordOwner
from window_consumer.runtime.figures.inspection import Inspection
from window_consumer.runtime.figures.stack_dump import CallPositions, ChildPicture
from window_consumer.runtime.figures.worker_snapshot import Phase, WorkerSnapshot
from window_consumer.runtime.manual_interventions import ManualInterventions
from window_consumer.runtime.partitions.assignments import Assignments
from window_consumer.runtime.partitions.broadcast_offsets import BroadcastOffsets, CatchUp
from window_consumer.runtime.partitions.offset_reset import OffsetResets
from window_consumer.runtime.partitions.start_offsets import CommittedStartOffsets, StartOffsets
from window_consumer.runtime.poll_loop import PollLoop, PollLoopParts
from window_consumer.runtime.pools.leases import Leases
from window_consumer.runtime.pools.pool import PoolWithChildren, PoolWithEventLoop, PoolWithLeases
from window_consumer.runtime.topic_watch import TopicNews, TopicWatch
from window_consumer.runtime.worker_log import WorkerLog
from window_consumer.runtime.worker_setup import WorkerSetup
from window_consumer.runtime.writing.exactly_once import TransactionOutlet
from window_consumer.runtime.writing.outlet import Outlet, SeparateWrites
from window_consumer.runtime.writing.publisher import Publisher
from window_consumer.runtime.writing.transactions import EndTransactions, TransactionalSink

_CLOSE_S: Final = 1.0


@frozen
class LeftBehind:
    """The handler calls that still run after a worker has ended, for its successor."""

    calls: Sequence[OutlivedCall] = ()
    """Those that keep lanes busy."""
    completions: Sequence[SimpleQueue[Any]] = ()
    """The queues where their slots report them when they end."""
    handled: Mapping[TopicPartition, HandledPosition] = field(factory=dict)
    """The progress in partitions without commits."""


def is_ready(loop: PollLoop) -> bool:
    """Return whether a worker has its partitions, perhaps none, and need not catch up first."""
    is_member = loop.phase is Phase.RUNNING and loop.ownership.in_group
    return is_member and loop.catching_up is None


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
        self._inherits = predecessor or LeftBehind()
        self._observers = Observers(setup.observers, self._worker_log.observer_failed)
        self._engine = self._new_engine()
        whose = RecordOwner(setup.name, setup.origin.handler, setup.loggable_key)
        caller = Caller(setup.handler, setup.faults.failure, setup.faults.stalled, whose)
        self._pool = setup.make_pool(
            setup.name, setup.engine.slots, caller, self._completions, state
        )
        self._writer, outlet = self._outlet(source)
        self._watch = TopicWatch(
            setup.name, setup.ask_topics, self._completions, ask_ends=setup.ask_ends
        )
        parts = self._loop_parts(source, outlet)
        self.loop = PollLoop(setup.name, parts, setup.loop)
        self.inspect = Inspection(self.loop.mailbox, source)
        self.interventions = ManualInterventions(self.loop.mailbox, self._worker_log)

    def _new_engine(self) -> Engine:
        setup = self.setup
        copy = CopyMaker(setup.origin, setup.target_of).copy
        engine = setup.make_engine(setup.engine, setup.jitter, setup.retry_levels, copy)
        engine.decide_turns(setup.turn_rules)
        engine.obey(setup.pause_rules)
        engine.inherit(self._inherits.calls)
        if setup.observers:
            engine.observe(self._observers)
        return engine

    def _loop_parts(self, source: Source, outlet: Outlet) -> PollLoopParts:
        setup, log = self.setup, self._worker_log
        catch_up = CatchUp() if isinstance(self._engine.guarantee, Broadcast) else None
        assignments = Assignments(
            source, self._starts(source, catch_up), log.warn, setup.preparations
        )
        return PollLoopParts(
            source=source,
            engine=self._engine,
            pool=self._pool,
            outlet=outlet,
            completions=self._completions,
            assignments=assignments,
            offset_resets=OffsetResets(
                source, self._engine, assignments, setup.on_out_of_range, log, setup.retry_levels
            ),
            worker_log=log,
            catch_up=catch_up,
            clock=self._clock,
            on_phase=lambda phase: self._tell_phase(self, phase),
            on_paused=self._watch.set_paused,
            inherited=self._inherits.completions,
        )

    def _starts(self, source: Source, catch_up: CatchUp | None) -> StartOffsets:
        """Return the object that finds start offsets."""
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
        """Return the outlet, and the thread that waits for the brokers."""
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

        Its threads and windows are new, its observers and its Sink the same. Keys whose calls still
        run here wait there until these calls have ended.
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
        """Pass topics to the poll thread, like the topic watch."""
        self._completions.put(news)

    def outline(self) -> WorkerSnapshot:
        """Return the current state without windows, and without asking the poll thread."""
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
        """Return the current state; wait for the poll thread.

        Without ``cells`` each window has only its row, which is many times cheaper.
        """
        windows = self.inspect.windows(timeout_s, cells=cells)
        if windows is not None:
            loop = self._pool.event_loop() if isinstance(self._pool, PoolWithEventLoop) else None
            windows = evolve(windows, loop=loop, cannot_write=self.cannot_write)
        return evolve(self.outline(), windows=windows)

    @property
    def cannot_write(self) -> str | None:
        """Why copies and results cannot be written at the moment; None if they can."""
        return self._writer.trouble

    @property
    def leases(self) -> Leases | None:
        """The leases that are its slots; None for other slots."""
        return self._pool.leases if isinstance(self._pool, PoolWithLeases) else None

    def children(self) -> Sequence[ChildPicture]:
        """Return the states of the child processes; empty without any."""
        return self._pool.children() if isinstance(self._pool, PoolWithChildren) else ()

    def places(self, children: Sequence[ChildPicture] | None = None) -> CallPositions:
        """Return the current positions of its calls; pass ``children`` if they are known."""
        if isinstance(self._pool, PoolWithEventLoop):
            return CallPositions(coroutines=self._pool.coroutines())
        return CallPositions(self.children() if children is None else children)

    def log_summary(self) -> None:
        """Log the last lines of the worker."""
        loop, log = self.loop, self._worker_log
        moves = bool(self.setup.engine.retry.levels)
        log.stopped(self.counters, loop.unfinished, loop.first_unfinished, moves=moves)
        if loop.outlived:
            late_s = self.setup.loop.stop_timeout_s
            when = f"after {late_s:g} s" if loop.is_late else "when it stopped, known to hang"
            log.error(
                LogEvent.CALLS_UNFINISHED,
                f"{loop.outlived} calls had not returned {when}; {self._what_follows}",
                calls=loop.outlived,
            )

    @property
    def _what_follows(self) -> str:
        return what_follows(repeats=self._engine.guarantee.repeats)
