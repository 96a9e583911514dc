"""The poll loop: the thread that owns the Source and the Engine and moves records between them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from attrs import frozen

from window_consumer.engine.decisions import Decisions, Outlived
from window_consumer.engine.engine import Engine
from window_consumer.engine.guards.breaker_state import BreakerAnswer
from window_consumer.engine.guards.interventions import Intervention, InterventionResult
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.snapshot import take_snapshot
from window_consumer.engine.windows_snapshot import WindowsSnapshot
from window_consumer.model.errors import WindowConsumerError, WorkerStoppedError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Batch, Clock, CommitResults, Source, TopicFacts
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.assignments import Assignments
from window_consumer.runtime.final_commit import FinalCommits
from window_consumer.runtime.freeze_detector import FreezeDetector
from window_consumer.runtime.mailbox import Ask, MailboxRequest
from window_consumer.runtime.offset_reset import OffsetResets
from window_consumer.runtime.pools.pool import Pool, ResizablePool
from window_consumer.runtime.publisher import Published, Publisher, ResultAck
from window_consumer.runtime.topic_watch import LogEnds, TopicNews
from window_consumer.runtime.worker_log import WorkerLog

IDLE_S = 0.1
"""The longest wait for a record. The thread notices a stop within this time."""

SERVE_S = 0.05
"""While the slots are busy, the loop still polls the client this often, also for copies."""

INTERRUPT_S = 1.0
"""How long cancelled calls may take to end when their partition is revoked."""

ENDING_S = 3.0
"""What a stop may take beyond ``stop_timeout``: for ending calls, checking the topics and
committing."""

LEAVING_S = 1.5
"""What leaving the group may take. Together with ``ENDING_S`` this is below the 5 s that the docs
promise."""

POSITIONS_S = 0.25
"""How often the loop reads the client's positions for idle partitions."""

T = TypeVar("T")


class Phase(Enum):
    """The stage of a worker's life."""

    JOINING = "joining"
    RUNNING = "running"
    DRAINING = "draining"
    DRAINED = "drained"
    LEFT = "left"


_LIVE = (Phase.JOINING, Phase.RUNNING)


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
    publisher: Publisher
    completions: SimpleQueue[Any]
    assignments: Assignments
    offset_resets: OffsetResets
    worker_log: WorkerLog
    clock: Clock
    on_phase: Callable[[Phase], None]
    on_paused: Callable[[Sequence[TopicPartition]], None] = lambda _names: None
    """Called periodically with the partitions that are not fetched."""
    inherited: Sequence[SimpleQueue[Any]] = ()
    """The completions queues of the worker's predecessors, whose calls may still run."""


class PollLoop:
    """Drives one worker and is its Source's Listener. Owner: the poll thread.

    Other threads call only ``stop``, ``leave``, ``ask``, ``snapshot``, ``halt``,
    ``decide_breaker`` and ``intervene``, and read ``phase``, ``failure`` and ``outlived``.
    """

    def __init__(self, worker: str, parts: PollLoopParts, rules: LoopRules):
        self._parts = parts
        self._source = parts.source
        self._engine = parts.engine
        self._clock = parts.clock
        self._worker_log = parts.worker_log
        self._rules = rules
        self._topics = list(rules.topics)
        self._stopping = threading.Event()
        self._leaving = threading.Event()
        self._resizable: ResizablePool | None = None
        """Set where the number of slots adapts to their throughput."""
        self._slots = parts.engine.rules.slots
        if parts.engine.adaptive_concurrency is not None and isinstance(parts.pool, ResizablePool):
            self._resizable = parts.pool
            parts.engine.slots_can_rest()
            self._resize()
        self._given_up: WorkerStoppedError | None = None
        """Why the pool cannot continue, None while it can."""
        self._served_at = 0.0
        self._positions_at = 0.0
        self._last_commits = FinalCommits(
            parts.source, parts.assignments, parts.worker_log, self._left_s
        )
        self._stop_by = self._end_by = float("inf")
        """Deadlines of a stop: when handlers must end, and when everything must be over."""
        self._freeze_detector = FreezeDetector(parts.engine, parts.clock.now, parts.worker_log.warn)
        self.phase = Phase.JOINING
        self.in_group = False
        """Whether the worker is a member of its group. A member may have no partitions."""
        self.failure: BaseException | None = None
        """Why the worker stopped by itself, None where it did not."""
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
        self._parts.completions.put(None)

    def leave(self) -> None:
        """Let the drained worker leave its group."""
        self._leaving.set()
        self._parts.completions.put(None)

    def ask(self, ask: Ask[T], timeout_s: float) -> T | None:
        """Run ``ask`` with the Engine on the poll thread and return its answer; wakes the thread.

        Return None after ``timeout_s`` without an answer. An exception of ``ask`` is logged and
        stops nothing.
        """
        question = MailboxRequest(ask)
        self._parts.completions.put(question)
        return question.wait(timeout_s)

    def snapshot(self, timeout_s: float, *, cells: bool = True) -> WindowsSnapshot | None:
        """Return the windows, or None where the poll thread does not answer in time.

        Without ``cells`` it has only one row for each window, which is many times cheaper.
        """

        def take(engine: Engine, clock: Clock) -> WindowsSnapshot:
            read = [name for name, each in engine.partitions.items() if each.is_fetched]
            engine.on_log_ends(self._source.log_ends(read))
            return take_snapshot(engine, clock.now(), clock.wall_ms(), cells=cells)

        return self.ask(take, timeout_s)

    def halt(self, name: TopicPartition | None, *, halted: bool, timeout_s: float) -> bool | None:
        """Pause or resume a partition, or the whole worker for None, see ``Engine.on_halted``.

        Return None where the poll thread does not answer in time. Nothing changes then.
        """

        def do(engine: Engine, clock: Clock) -> bool:
            is_ours = engine.on_halted(name, clock.now(), halted=halted)
            if is_ours:
                what = "the worker" if name is None else str(name)
                how = "paused: nothing new starts" if halted else "resumed"
                self._worker_log.info(
                    LogEvent.READING_PAUSED if halted else LogEvent.READING_RESUMED,
                    f"{what} is {how}, by hand",
                    topic=None if name is None else name.topic,
                    partition=None if name is None else name.partition,
                    offset=None,  # else RecordContext takes it for a line without a place
                )
            return is_ours

        return self.ask(do, timeout_s)

    def decide_breaker(self, *, release: bool, timeout_s: float) -> BreakerAnswer | None:
        """Obey a user about the breaker, see ``Engine.on_breaker_decision``.

        Return None where the poll thread does not answer in time. Nothing changes then.
        """

        def do(engine: Engine, clock: Clock) -> BreakerAnswer:
            return engine.on_breaker_decision(clock.now(), release=release)

        return self.ask(do, timeout_s)

    def intervene(
        self, name: TopicPartition, offset: int, wanted: Intervention, timeout_s: float
    ) -> InterventionResult | None:
        """Resolve one failed record by hand, see ``Engine.on_intervention``.

        Return None where the poll thread does not answer in time. Nothing changes then.
        """

        def do(engine: Engine, clock: Clock) -> InterventionResult:
            return engine.on_intervention(name, offset, wanted, clock.now())

        return self.ask(do, timeout_s)

    @property
    def silent_s(self) -> float:
        """Seconds since the thread last reported activity. It waits for 0.1 s at most."""
        return max(0.0, self._clock.now() - self._freeze_detector.alive_at)

    # ---- the thread

    def _run(self) -> None:
        self._freeze_detector.was_busy()
        try:
            self._source.subscribe(self._topics, self)
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
                self._take_completions(SERVE_S)
                self._source.poll(0, 0)
        except BaseException as error:
            self.failure = self.failure or error
        # Exiting the lifespan may have taken any time, so leaving the group gets its own deadline.
        self._end_by = max(self._end_by + LEAVING_S, self._clock.now() + LEAVING_S)
        if not self._source.close(self._left_s(self._rules.close_timeout_s)):
            self._worker_log.warn(
                LogEvent.CLIENT_LEFT_OPEN,
                "the client did not close in time; its session will time out",
            )
        self._enter(Phase.LEFT)

    def _turn(self) -> None:
        now = self._freeze_detector.notice()
        engine = self._engine
        worked = self._take_completions(0.0)
        engine.on_slots(self._parts.pool.slots)
        if engine.outlived:
            self._take_inherited(now)
        serve = now - self._served_at >= SERVE_S
        want = engine.appetite(for_copies=serve)
        if want or serve:
            worked = self._fetch(want, 0.0, now) or worked
        decisions = self._decide()
        self._resize()
        self._carry_out(decisions)
        if decisions.stop is not None:
            # A revoke that has begun must finish, so this is not part of _carry_out.
            raise decisions.stop
        if self._given_up is not None:
            raise self._given_up
        if now - self._positions_at >= POSITIONS_S:
            self._run_periodic(now)
        if rest_s := engine.demand.rest_s:
            self._clock.sleep(rest_s)
        elif not worked:
            self._wait(want)

    def _wait(self, want: int) -> None:
        now = self._clock.now()
        if not want or self._engine.waiting_for_results:
            self._take_completions(self._engine.wait_s(now, SERVE_S))
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

    def _take_completions(self, timeout_s: float) -> bool:
        """Pass the other threads' reports to the Engine; wait up to ``timeout_s`` for the first."""
        completions = self._parts.completions
        taken = False
        try:
            item = completions.get(timeout=timeout_s) if timeout_s > 0 else completions.get_nowait()
            now = self._freeze_detector.notice()
            while True:
                taken = True
                if type(item) is Slice:
                    self._engine.on_completion(item, now)
                elif type(item) is MailboxRequest:
                    self._answer(item)
                elif item is not None:
                    self._receive(item)
                item = completions.get_nowait()
        except Empty:
            if timeout_s > 0:
                # A thread that waits in a loop for long calls was not frozen.
                self._freeze_detector.notice()
            return taken

    def _take_inherited(self, now: float) -> None:
        """Pass the ends of the predecessors' calls to the Engine; nothing else counts any more."""
        for queue in self._parts.inherited:
            while not queue.empty():
                item = queue.get_nowait()
                if type(item) is Slice:
                    self._engine.on_inherited_completion(item, now)

    def _receive(
        self, item: ResultAck | Published | TopicNews | LogEnds | WindowConsumerError
    ) -> None:
        if isinstance(item, ResultAck):
            if item.error is not None:
                self._worker_log.not_produced(item.production, item.index, item.error)
            self._engine.on_produced(item.production, item.index, item.error, self._clock.now())
        elif isinstance(item, Published):
            if item.error is not None:
                self._worker_log.not_copied(item.failed, item.error)
            self._engine.on_published(item.failed, item.error, self._clock.now())
        elif isinstance(item, TopicNews):
            self._on_topics(item.facts)
        elif isinstance(item, LogEnds):
            self._engine.on_log_ends(item.ends)
        elif isinstance(item, WorkerStoppedError):
            self._given_up = item
        else:
            self._worker_log.trouble(item)

    def _resize(self) -> None:
        slots, resizable = self._engine.dispatcher.slots, self._resizable
        if resizable is None:
            return
        if slots != self._slots:
            self._slots = slots
            resizable.use(slots)
        self._engine.slots_ready = resizable.is_ready

    def _decide(self) -> Decisions:
        return self._engine.on_tick(self._clock.now(), self._clock.wall_ms())

    def _carry_out(self, decisions: Decisions) -> None:
        parts = self._parts
        for slice_ in decisions.dispatch:
            parts.pool.submit(slice_)
        for failed, copy in decisions.publish:
            parts.publisher.publish(failed, copy)
        for production in decisions.produce:
            parts.publisher.produce(production)
        if decisions.commit:
            self._source.commit(decisions.commit)
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
        assigned = self._parts.assignments.retry(now)
        for each in assigned:
            self._source.seek(each.name, each.next_offset)
        self._engine.on_assigned(assigned, now)
        if assigned:
            self._log_assignment()
        self._worker_log.recalled(assigned)
        self._parts.offset_resets.retry(now)
        partitions = self._engine.partitions
        self._parts.on_paused([name for name, each in partitions.items() if not each.is_fetched])
        self._freeze_detector.was_busy()

    def _answer(self, question: MailboxRequest[Any]) -> None:
        try:
            question.answer(self._engine, self._clock)
        except Exception as error:
            # A read-only request must never stop the work.
            self._worker_log.warn(
                LogEvent.REQUEST_FAILED, f"a request failed: {error!r}; please report this bug"
            )

    # ---- the Listener

    def on_assigned(self, names: Sequence[TopicPartition]) -> None:
        """Resolve where each partition starts and start it."""
        self.in_group = True
        self._count_change(names)
        now = self._clock.now()
        if self.phase not in _LIVE:
            self._source.start(dict.fromkeys(names))
            return
        assigned = self._parts.assignments.resolve(names, now)
        self._source.start(
            {**dict.fromkeys(names), **{each.name: each.next_offset for each in assigned}}
        )
        self._engine.on_assigned(assigned, now)
        self._freeze_detector.was_busy()
        if self.phase is Phase.JOINING:
            self._enter(Phase.RUNNING)
        self._log_assignment()
        self._worker_log.recalled(assigned)

    def on_revoked(self, names: Sequence[TopicPartition]) -> None:
        """Finish running calls within bounds, then make the last commit of this epoch."""
        self._count_change(names)
        now = self._clock.now()
        self._engine.on_revoking(names, now)
        self._finish_running(names, min(now + self._rules.revoke_timeout_s, self._stop_by))
        self._give_up(names)
        self._freeze_detector.was_busy()

    def on_lost(self, names: Sequence[TopicPartition]) -> None:
        """Give partitions up without a commit, because another member owns them already."""
        self._count_change(names)
        self.in_group = False
        now = self._freeze_detector.notice()
        self._remove(names)
        held = [name for name in names if name in self._engine.partitions]
        suspects = self._freeze_detector.suspects(held)
        for name in held:
            self._parts.assignments.kept.keep(self._engine.partitions[name], now)
        running = self._engine.running(held)
        outlived = dict.fromkeys([*self._engine.on_lost(names, now), *suspects])
        if running:
            self._parts.pool.interrupt(running)
        if held:
            self._worker_log.warn(
                LogEvent.PARTITIONS_LOST,
                f"lost {_listed(held)}: the session timed out or was fenced",
                partitions=len(held),
            )
        self._worker_log.calls.outlived(outlived)

    def _log_assignment(self) -> None:
        mine = self._engine.partitions
        text = f"reads {_listed(mine)}"
        self._worker_log.info(LogEvent.PARTITIONS_ASSIGNED, text, partitions=len(mine))

    def on_committed(self, results: CommitResults) -> None:
        """Pass the commit results to the Engine."""
        self._engine.on_committed(results, self._clock.now())
        self._worker_log.commits(results)

    def on_out_of_range(self, name: TopicPartition) -> None:
        """Reset the offset by the configured rule, or stop."""
        self._parts.offset_resets.out_of_range(name, self._clock.now())
        self._freeze_detector.was_busy()

    def on_error(self, error: WindowConsumerError) -> None:
        """Log an error that the client is retrying."""
        self._worker_log.trouble(error)

    def _count_change(self, names: Sequence[TopicPartition]) -> None:
        if names:
            self._engine.on_rebalance(self._clock.now())

    def _on_topics(self, facts: Mapping[str, TopicFacts]) -> None:
        now = self._clock.now()
        self._parts.offset_resets.reset_recreated(facts, now)
        self._engine.on_topics({topic: each.partitions for topic, each in facts.items()}, now)
        self._freeze_detector.was_busy()
        topics = sorted(facts)
        if topics and topics != sorted(self._topics):
            added, removed = set(topics) - set(self._topics), set(self._topics) - set(topics)
            self._worker_log.info(
                LogEvent.TOPICS_CHANGED, f"topics changed: {len(added)} new, {len(removed)} gone"
            )
            self._parts.assignments.appeared(added)
            self._topics = topics
            self._source.subscribe(topics, self)

    # ---- giving up

    def _finish_running(self, names: Sequence[TopicPartition], deadline: float) -> None:
        """Wait for the calls and copies of these partitions while the others continue."""
        while self._engine.busy(names) and (left := deadline - self._clock.now()) > 0:
            self._take_completions(min(left, SERVE_S))
            self._carry_out(self._decide())
        self._interrupt(names, f"revoke_timeout ({self._rules.revoke_timeout_s:g} s) is over")

    def _interrupt(self, names: Sequence[TopicPartition], why: str) -> None:
        """End those calls of these partitions that can be ended, and wait for them."""
        # A queued slice has no call to end.
        calls = {
            each: message.offset()
            for each in self._engine.running(names)
            if (message := each.running()) is not None
        }
        if not calls or not self._parts.pool.interrupt(list(calls)):
            return
        deadline = self._clock.now() + self._left_s(INTERRUPT_S)
        while (left := deadline - self._clock.now()) > 0 and self._engine.running(names):
            self._take_completions(min(left, SERVE_S))
        continuing = len(calls.keys() & set(self._engine.running(names)))
        if continuing < len(calls):
            places = [(each.partition.name, offset) for each, offset in calls.items()]
            self._worker_log.calls.interrupted(places, continuing, why, self._parts.pool.ending)

    def _left_s(self, most_s: float) -> float:
        """Return how long a step of giving up may take: ``most_s``, or what is left of a stop."""
        return max(0.0, min(most_s, self._end_by - self._clock.now()))

    def _give_up(self, names: Sequence[TopicPartition]) -> Sequence[Outlived]:
        """Make the last commit; return the calls that are still running."""
        verified = self._last_commits.verified(names)
        commits, outlived = self._engine.on_revoked(names, self._clock.now())
        self._worker_log.calls.outlived(outlived)
        self._last_commits.write([each for each in commits if each.name in verified])
        self._remove(names)
        return outlived

    def _remove(self, names: Sequence[TopicPartition]) -> None:
        self._parts.assignments.remove(names)
        self._parts.offset_resets.remove(names)

    def _drain(self) -> None:
        """Let running calls finish within stop_timeout, commit, and give up all partitions."""
        self._enter(Phase.DRAINING)
        engine = self._engine
        started = self._clock.now()
        names = list(engine.partitions)
        engine.on_stopping(started)
        self._parts.assignments.cancel()
        if isinstance(self.failure, WorkerStoppedError):
            # The drain waits for running calls first; this line explains why it happens.
            self._worker_log.error(LogEvent.WORKER_GIVEN_UP, f"stops: {self.failure}")
        if names:
            self._source.pause(names)
        self._stop_by = started + self._rules.stop_timeout_s
        self._end_by = self._stop_by + ENDING_S
        while (now := self._clock.now()) < self._stop_by and engine.worth_waiting_for(now):
            self._take_completions(SERVE_S)
            self._fetch(0, 0.0, self._clock.now())
            self._carry_out(self._decide())
        names = list(engine.partitions)
        self.is_late = is_over = self._clock.now() >= self._stop_by
        over = f"stop_timeout ({self._rules.stop_timeout_s:g} s) is over"
        self._interrupt(names, over if is_over else "the worker stops, and they are known to hang")
        if names and self.failure is None:
            # A poll that raised may have read records that never reached the Engine.
            engine.on_positions(self._source.positions(names))
        self.unfinished = engine.unfinished()
        self.first_unfinished = engine.first_unfinished()
        outlived = self._give_up(names)
        self.hangs = bool(outlived)
        self.outlived = sum(not call.abandoned for call in outlived)

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._parts.on_phase(phase)


def _listed(names: Sequence[TopicPartition] | Mapping[TopicPartition, object]) -> str:
    if not names:
        return "no partition for now"
    shown = ", ".join(str(name) for name in sorted(names)[:8])
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"{len(names)} partition{'s' if len(names) > 1 else ''}: {shown}{more}"
