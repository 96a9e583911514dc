"""The poll loop: the thread that owns the Source and the Engine and moves records between them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from attrs import frozen

from window_consumer.engine.decisions import Decisions
from window_consumer.engine.engine import Engine
from window_consumer.model.errors import WorkerStoppedError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Batch, Clock, Source
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.figures.worker_snapshot import Phase
from window_consumer.runtime.freeze_detector import FreezeDetector
from window_consumer.runtime.mailbox import SERVE_S, WorkerMailbox
from window_consumer.runtime.partitions.assignments import Assignments
from window_consumer.runtime.partitions.broadcast_offsets import CatchUp
from window_consumer.runtime.partitions.offset_reset import OffsetResets
from window_consumer.runtime.partitions.ownership import PartitionOwnership
from window_consumer.runtime.pools.pool import Pool, ResizablePool
from window_consumer.runtime.worker_log import WorkerLog
from window_consumer.runtime.writing.outlet import Outlet

IDLE_S = 0.1
"""The longest wait for a record. The thread notices a stop within this time."""

ENDING_S = 3.0
"""How long a stop may take beyond ``stop_timeout``, to end calls, check the topics and commit."""

LEAVING_S = 1.5
"""How long leaving the group may take. With ``ENDING_S``, this is below the 5 s that the docs
promise."""

POSITIONS_S = 0.25
"""How often the loop reads the client's positions for idle partitions."""


CATCH_UP_S = 0.02
"""How often it does so while a worker catches up before it is ready."""


@frozen
class LoopRules:
    """The part of the configuration that the poll loop needs."""

    topics: tuple[str, ...]
    revoke_timeout_s: float = 10.0
    stop_timeout_s: float = 20.0
    close_timeout_s: float = 3.0


@frozen
class PollLoopParts:
    """The objects that the poll loop drives."""

    source: Source
    engine: Engine
    pool: Pool
    outlet: Outlet
    completions: SimpleQueue[Any]
    assignments: Assignments
    offset_resets: OffsetResets
    worker_log: WorkerLog
    clock: Clock
    on_phase: Callable[[Phase], None]
    catch_up: CatchUp | None = None
    """Set if the worker must handle its backlog before it is ready."""
    on_paused: Callable[[Sequence[TopicPartition]], None] = lambda _names: None
    """Called periodically with the partitions that are not fetched."""
    inherited: Sequence[SimpleQueue[Any]] = ()
    """The completions queues of the worker's predecessors, whose calls may still run."""


class PollLoop:
    """Drives one worker. Owner: the poll thread.

    Other threads call only ``stop``, ``leave`` and ``mailbox.ask``, and read ``phase``, ``failure``
    and ``outlived``.
    """

    def __init__(self, worker: str, parts: PollLoopParts, rules: LoopRules):
        self._parts = parts
        self._source = parts.source
        self._engine = parts.engine
        self._clock = parts.clock
        self._worker_log = parts.worker_log
        self._rules = rules
        self._stopping = threading.Event()
        self._leaving = threading.Event()
        self._resizable: ResizablePool | None = None
        """Set if the number of slots adapts to their throughput."""
        self._slots = parts.engine.rules.slots
        if parts.engine.slot_limit.adaptive is not None and isinstance(parts.pool, ResizablePool):
            self._resizable = parts.pool
            parts.engine.slot_limit.slots_can_rest()
            self._resize()
        self._served_at = 0.0
        self._positions_at = 0.0
        self._positions_s = POSITIONS_S
        self._freeze_detector = FreezeDetector(parts.engine, parts.clock.now, parts.worker_log.warn)
        self.mailbox = WorkerMailbox(
            engine=parts.engine,
            clock=parts.clock,
            worker_log=parts.worker_log,
            freeze_detector=self._freeze_detector,
            completions=parts.completions,
            inherited=parts.inherited,
        )
        self.ownership = PartitionOwnership(
            topics=list(rules.topics),
            revoke_timeout_s=rules.revoke_timeout_s,
            source=parts.source,
            outlet=parts.outlet,
            engine=parts.engine,
            pool=parts.pool,
            assignments=parts.assignments,
            offset_resets=parts.offset_resets,
            worker_log=parts.worker_log,
            clock=parts.clock,
            freeze_detector=self._freeze_detector,
            mailbox=self.mailbox,
            serve=lambda: self._carry_out(self._decide()),
            on_joined=self._on_joined,
        )
        parts.outlet.attach(self.ownership)
        self.phase = Phase.JOINING
        self.failure: BaseException | None = None
        """Why the worker stopped by itself, None if it did not."""
        self.outlived = 0
        """Calls still running when the stop ended its wait for them. Their records will run
        again."""
        self.is_late = False
        """Whether the stop waited for all of ``stop_timeout``."""
        self.hangs = False
        """Whether calls are still running, including those abandoned long before."""
        self.unfinished = 0
        """Records without a final outcome at the stop. Kafka will deliver them again."""
        self.first_unfinished: Sequence[tuple[TopicPartition, int]] = ()
        """The first unfinished record of each partition."""
        self.thread = threading.Thread(target=self._run, name=f"wc-{worker}-poll", daemon=True)

    # ---- for other threads

    def stop(self) -> None:
        """Request a stop: drain, commit, then wait for ``leave``."""
        self._stopping.set()
        self.mailbox.wake()

    def leave(self) -> None:
        """Let the drained worker leave its group."""
        self._leaving.set()
        self.mailbox.wake()

    @property
    def silent_s(self) -> float:
        """Seconds since the thread last reported activity. It waits for 0.1 s at most."""
        return max(0.0, self._clock.now() - self._freeze_detector.alive_at)

    @property
    def catching_up(self) -> int | None:
        """How many records must be handled before the worker is ready; None without that rule."""
        catch_up = self._parts.catch_up
        return None if catch_up is None or catch_up.is_done else catch_up.records

    # ---- the thread

    def _run(self) -> None:
        self._freeze_detector.was_busy()
        try:
            self._source.subscribe(self.ownership.topics, self.ownership)
            while not self._stopping.is_set():
                self._turn()
        except BaseException as error:
            self.failure = error
        try:
            self._drain()
        except BaseException as error:
            self.failure = self.failure or error
        self._enter(Phase.DRAINED)
        try:
            while not self._leaving.is_set():
                self.mailbox.take(SERVE_S)
                self._source.poll(0, 0)
        except BaseException as error:
            self.failure = self.failure or error
        # Exiting the lifespan may take arbitrarily long, so leaving the group has its own deadline.
        ownership = self.ownership
        ownership.end_by = max(ownership.end_by, self._clock.now()) + LEAVING_S
        if not self._source.close(ownership.left_s(self._rules.close_timeout_s)):
            self._worker_log.warn(
                LogEvent.CLIENT_LEFT_OPEN,
                "the client did not close in time; its session will time out",
            )
        self._enter(Phase.LEFT)

    def _turn(self) -> None:
        now = self._freeze_detector.notice()
        engine = self._engine
        worked = self.mailbox.take(0.0)
        engine.on_slots(self._parts.pool.slots)
        if engine.outlived:
            self.mailbox.take_inherited(now)
        serve = now - self._served_at >= SERVE_S or engine.awaits_ack
        want = engine.appetite(for_copies=serve)
        if want or serve:
            worked = self._fetch(want, 0.0, now) or worked
        decisions = self._decide()
        self._resize()
        self._carry_out(decisions)
        if decisions.stop is not None:
            # A revoke that has begun must finish, so this is not part of _carry_out.
            raise decisions.stop
        if self.mailbox.given_up is not None:
            raise self.mailbox.given_up
        if now - self._positions_at >= self._positions_s:
            self._run_periodic(now)
        if rest_s := engine.demand.rest_s:
            self._clock.sleep(rest_s)
        elif not worked:
            self._wait(want)

    def _wait(self, want: int) -> None:
        now = self._clock.now()
        if not want or self._engine.work.waiting_for_results:
            self.mailbox.take(self._engine.wait_s(now, SERVE_S))
        else:
            self._fetch(want, self._engine.wait_s(now, IDLE_S), now)

    def _fetch(self, want: int, timeout_s: float, now: float) -> bool:
        batches = self._source.poll(want, timeout_s)
        self._served_at = now
        if batches:
            # The poll may have waited for these records, so read both clocks again. Read the wall
            # clock first: in the other order, records would count as due too early by the time
            # between the two reads.
            wall_ms = self._clock.wall_ms()
            now = self._clock.now()
            for batch in batches:
                if self._engine.leaves_hole(batch):
                    self._engine.on_log_ends(self._source.log_ends([batch.name]))
                if not self._engine.on_records(batch, now, wall_ms):
                    self._reject(batch, now)
        return bool(batches)

    def _reject(self, batch: Batch, now: float) -> None:
        """Reset the offset of a partition whose records lie beyond the end of its log."""
        self._worker_log.warn(
            LogEvent.RECORDS_REJECTED,
            f"{batch.name}: records from offset {batch.messages[0].offset()} lie beyond the log's"
            " end; they are not handled",
        )
        self._parts.offset_resets.out_of_range(batch.name, now)

    def _resize(self) -> None:
        slots, resizable = self._engine.dispatcher.slots, self._resizable
        if resizable is None:
            return
        if slots != self._slots:
            self._slots = slots
            resizable.use(slots)
        self._engine.slot_limit.slots_ready = resizable.is_ready

    def _decide(self) -> Decisions:
        self._parts.outlet.advance()
        return self._engine.on_tick(self._clock.now(), self._clock.wall_ms())

    def _carry_out(self, decisions: Decisions) -> None:
        parts = self._parts
        for slice_ in decisions.dispatch:
            parts.pool.submit(slice_)
        parts.outlet.send(decisions)
        if decisions.pause:
            self._source.pause(decisions.pause)
        for name, offset in decisions.resume:
            self._source.seek(name, offset)
        if decisions.failed:
            rules = self._engine.rules.retry
            self._worker_log.calls.failed(decisions.failed, rules, self._clock.now())
        self._worker_log.hovering(decisions.hovering)
        self._worker_log.away(decisions.away)
        self._worker_log.passed_over(decisions.passed_over)
        self._worker_log.breaker(decisions.breaker)
        self._worker_log.limit(decisions.limit)
        for stalled in decisions.stalled:
            failure = parts.pool.inspect(stalled)
            if failure is not None:
                self._worker_log.calls.stalled(stalled, failure, parts.pool.ending)
            self._engine.on_looked_at(stalled, failure, self._clock.now())
        self._worker_log.calls.returned(decisions.returned)

    def _run_periodic(self, now: float) -> None:
        """Do the periodic work."""
        self._positions_at = now
        if self._resizable is not None:
            self._resizable.use(self._slots)
        idle = [name for name, each in self._engine.partitions.items() if each.idle]
        if idle:
            self._engine.on_positions(self._source.positions(idle))
        self.ownership.retry(now)
        if self._parts.catch_up is not None:
            self._parts.catch_up.advance(self._engine)
            self._positions_s = POSITIONS_S if self.catching_up is None else CATCH_UP_S
        partitions = self._engine.partitions
        self._parts.on_paused([name for name, each in partitions.items() if not each.is_fetched])
        self._freeze_detector.was_busy()

    def _drain(self) -> None:
        """Let running calls finish within stop_timeout, commit, and give up all partitions."""
        self._enter(Phase.DRAINING)
        engine, ownership = self._engine, self.ownership
        ownership.is_leaving = True
        started = self._clock.now()
        names = list(engine.partitions)
        engine.on_stopping(started)
        self._parts.assignments.cancel()
        if isinstance(self.failure, WorkerStoppedError):
            # The drain waits for running calls first; this line explains why it happens.
            self._worker_log.error(LogEvent.WORKER_GIVEN_UP, f"stops: {self.failure}")
        if names:
            self._source.pause(names)
        stop_by = ownership.stop_by = started + self._rules.stop_timeout_s
        ownership.end_by = stop_by + ENDING_S
        while (now := self._clock.now()) < stop_by and engine.work.worth_waiting_for(now):
            self.mailbox.take(SERVE_S)
            self._fetch(0, 0.0, self._clock.now())
            self._carry_out(self._decide())
        names = list(engine.partitions)
        self.is_late = is_over = self._clock.now() >= stop_by
        over = f"stop_timeout ({self._rules.stop_timeout_s:g} s) is over"
        ownership.interrupt(
            names, over if is_over else "the worker stops, and they are known to hang"
        )
        if names and self.failure is None:
            # A poll that raised may have read records that never reached the Engine.
            engine.on_positions(self._source.positions(names))
        self.unfinished = engine.work.unfinished()
        self.first_unfinished = engine.work.first_unfinished()
        outlived = ownership.give_up(names)
        self.hangs = bool(outlived)
        self.outlived = sum(not call.abandoned for call in outlived)

    def _on_joined(self) -> None:
        if self.phase is Phase.JOINING:
            self._enter(Phase.RUNNING)

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._parts.on_phase(phase)
