"""The Engine: all rules of one worker behind one interface. Events go in, decisions come out.

The runtime, the simulator and the test kit drive the same Engine. Events only record what happened.
``on_tick`` then decides about all of it at once, even after a hundred completions.

=============== ==================================================== =========================
event           meaning                                              decisions (in a later tick)
=============== ==================================================== =========================
on_assigned     this partition is ours, from this offset on          commit of the start
on_records      the Source delivered these, in offset order          dispatch, pause; False for
                                                                     records of another log
on_completion   a slot has finished a slice                          dispatch, publish, produce,
                                                                     stop
on_inherited_   a slot of the predecessor has finished one           dispatch
completion
on_slots        the pool has this many slots now                     dispatch
on_looked_at    the stack of a call that does not return             dispatch, publish
on_published    the broker acked or refused a copy                   dispatch, publish, stop
on_produced     the broker acked or refused a result                 dispatch, publish, produce
on_released     a rule lets a held record be called, or leave        dispatch, publish
on_committed    the broker accepted or refused a commit              commit
on_positions    the positions of the client                          commit
on_topics       the partition counts of the subscribed topics        dispatch
on_revoking     this partition will be revoked: start nothing more
on_revoked      it is revoked now                                    (returns final commits)
on_lost         it is already lost
on_stood_still  the whole process was frozen                         (returns suspect calls)
on_halted       a user pauses or resumes one partition or all        dispatch
on_intervention a user skips a failed record or dead-letters it      dispatch, publish
on_concurrency  a user limits how many slots may be busy             dispatch
on_stopping     drain: take in and start nothing more
=============== ==================================================== =========================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from window_consumer.engine.commits.delivery_guarantee import MakeGuarantee
from window_consumer.engine.decisions import Assigned, Decisions, EngineRules, Outlived
from window_consumer.engine.guards.breaker_state import BreakerAnswer
from window_consumer.engine.guards.interventions import (
    UNNAMED,
    ConcurrencyAnswer,
    ConcurrencyRequest,
    Intervention,
    InterventionResult,
    PauseRequest,
)
from window_consumer.engine.guards.pause_rule import PauseRule
from window_consumer.engine.guards.stuck_calls import Stalled
from window_consumer.engine.latency_histogram import LatencyHistograms
from window_consumer.engine.observer import Observer, Observers, does_anything
from window_consumer.engine.ownership.owned_partitions import OwnedPartitions
from window_consumer.engine.parts import EngineParts
from window_consumer.engine.retry.copy_record import MakeCopy
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.output import Production
from window_consumer.engine.retry.policy import Jitter
from window_consumer.engine.retry.retry_topics import RetryTopicLevel
from window_consumer.engine.scheduling.outlived_calls import OutlivedCall
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.ticks import Ticks
from window_consumer.engine.turn import Leave, TurnRule
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.fault import Failure
from window_consumer.model.protocols import Batch, Commit, CommitResults, Copy
from window_consumer.model.record import TopicPartition

MakeEngine = Callable[["EngineRules", Jitter, Mapping[str, RetryTopicLevel], MakeCopy], "Engine"]


class Engine(EngineParts):
    """The parts of one worker's rules, with their events and decisions. Owner: poll thread."""

    def __init__(
        self,
        rules: EngineRules,
        jitter: Jitter,
        retry_levels: Mapping[str, RetryTopicLevel],
        make_copy: MakeCopy,
        make_guarantee: MakeGuarantee | None = None,
    ):
        super().__init__(rules, jitter, retry_levels, make_guarantee)
        self._make_copy = make_copy
        self._wall_offset_ms = 0.0
        self._ticks = Ticks(self)
        self.owned = OwnedPartitions(self)
        self.durations = LatencyHistograms()
        self.observer: Observer | None = None
        """The rules and the observer that want reports."""
        self._own_observer: Observer | None = None

    def observe(self, observer: Observer) -> None:
        """Report to this observer from now on; its exceptions propagate."""
        self._own_observer = observer
        self._choose_observers()

    def decide_turns(self, rules: Iterable[TurnRule]) -> None:
        """Ask these rules about each record at its turn, see ``turn``; the first takes precedence.

        Call it before anything is assigned.
        """
        for rule in rules:
            rule.begin(self.on_released)
            self.turns.rules.append(rule)
            self.epochs.asks_always = True
        self._choose_observers()

    def obey(self, rules: Iterable[PauseRule]) -> None:
        """Pause the worker when one of these rules says so, see ``pauses``."""
        self.pauses.rules.extend(rules)
        self._choose_observers()

    def _choose_observers(self) -> None:
        """Report to the rules and the observer that want reports, to rules first."""
        own = self._own_observer
        rules: list[Observer] = [*self.turns.rules, *self.pauses.rules]
        active = [each for each in [*rules, *([] if own is None else [own])] if does_anything(each)]
        observer = Observers(active, _raise) if len(active) > 1 else next(iter(active), None)
        self.observer = self.outcomes.observer = self.guarantee.observer = observer
        self.intake.observer = self.owned.observer = observer

    # ---- events

    def on_released(self, name: TopicPartition, offset: int, leave: Leave | None = None) -> bool:
        """Let a record that a rule holds be called or leave; return False if it is not held.

        While another record of its lane runs, it waits in line and gets another turn.
        """
        partition = self.partitions.get(name)
        return partition is not None and self.turn_decisions.release(
            partition, offset, leave, self.turns.now
        )

    def on_rebalance(self, now: float) -> None:
        """Record that the group has changed our assignment."""
        self.counters.rebalances += 1
        self.epochs.changes.append(now)

    def on_assigned(self, assignments: Iterable[Assigned], now: float) -> None:
        """Open a window, in a new epoch, for each partition."""
        self.owned.take(assignments, now)

    def leaves_hole(self, batch: Batch) -> bool:
        """Return whether records begin beyond the expected offset, so that the log's end is needed.

        If so, call ``on_log_ends`` next, with an end read after these records.
        """
        return self.intake.leaves_hole(batch)

    def on_records(self, batch: Batch, now: float, wall_ms: float) -> bool:
        """Take delivered records, in offset order, into the partition's window.

        ``wall_ms`` (milliseconds since 1970) is compared with the due times of copies. Return
        False, and take nothing, if the records leave a hole and lie beyond the log's end: they
        belong to another log. Raise ImpossibleRecordsError if they belong to another partition.
        """
        self.scheduling.advance_clocks(now)
        return self.intake.take(batch, now, wall_ms)

    def on_completion(self, slice_: Slice, now: float) -> None:
        """Process the results of a slice's records."""
        self.scheduling.advance_clocks(now)
        if self.outlived:
            self.epochs.release_lanes(slice_)
        if self.stalls.has_returned(slice_, now):
            return
        if self.slot_limit.adaptive is not None:
            self.slot_limit.record(slice_, now)
        self.dispatcher.back(slice_)
        self.durations.record(slice_)
        if self.observer is not None:
            self.observer.over(slice_, now)
        if slice_.partition.accepts_results:
            self.completion.complete(slice_, now)
        else:
            self.counters.late += len(slice_.messages)
        if slice_ not in self.acks.unacked_probes:
            self.breaker.over(slice_)

    def inherit(self, calls: Iterable[OutlivedCall]) -> None:
        """Take over the running calls of this worker's predecessor, before anything is assigned.

        Their lanes stay busy until ``on_inherited_completion`` reports their end.
        """
        self.outlived.inherit(calls)

    def on_inherited_completion(self, slice_: Slice, now: float) -> None:
        """Free the lanes of a call that a slot of the predecessor has finished."""
        call = self.epochs.release_lanes(slice_)
        if call is not None:
            self.stalls.record_return(slice_, call.offset, now)

    def on_slots(self, count: int) -> None:
        """Record how many slots the pool has now, busy or free; at most ``slots`` are used."""
        self.dispatcher.present_slots = count

    def on_looked_at(self, stalled: Stalled, failure: Failure | None, now: float) -> None:
        """Process the stack of a long-running call; ``failure`` is None if it has returned.

        If the call was to be abandoned, its slot has been replaced.
        """
        self.scheduling.advance_clocks(now)
        if failure is not None and self.observer is not None:
            self.observer.stalled(stalled, failure, now)
        self.stalls.on_inspected(stalled, failure, now)

    def on_published(
        self, failed: FailedRecord, error: PublishFailedError | None, now: float
    ) -> None:
        """Finish a record whose copy was acked; otherwise keep it open and retry."""
        if failed.partition.accepts_results:
            self.acks.copied(failed, error, now)
        else:
            self.failed_records.finish(failed)
            self.counters.late += 1

    def on_produced(
        self, production: Production, index: int, error: PublishFailedError | None, now: float
    ) -> None:
        """Finish the records of a call once its last result is acked."""
        self.acks.produced(production, index, error, now)

    def on_committed(self, results: CommitResults, now: float) -> None:
        """Process the results of commits."""
        self.guarantee.answered(results, now)

    def on_positions(self, positions: Mapping[TopicPartition, int]) -> None:
        """Record the client's positions: transaction markers may follow the last record."""
        self.intake.advance_positions(positions)

    def on_gone(self, name: TopicPartition, offsets: range, now: float) -> None:
        """Record that the log no longer has these offsets and that reading continues after them."""
        self.intake.skip(name, offsets, now)

    def on_log_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        """Record the logs' end offsets. They are only displayed."""
        self.intake.record_log_ends(ends)

    def on_topics(self, sizes: Mapping[str, int], now: float) -> None:
        """Record how many partitions each subscribed topic has."""
        self.lane_ownership.on_topics(sizes, now)

    def on_revoking(self, names: Iterable[TopicPartition], now: float) -> None:
        """Start nothing more of these partitions and take back unstarted records.

        Copies whose lanes leave with these partitions do not start either.
        """
        self.owned.revoke(names, now)

    def on_revoked(
        self, names: Iterable[TopicPartition], now: float
    ) -> tuple[list[Commit], list[Outlived]]:
        """Release partitions; return their final commits and the calls that are still running.

        A partition with nothing running and nothing open ends cleanly. If nothing has started in
        it, or its suspects have not passed, its commit makes no claim about crashes. Otherwise
        members that come and go would clear a record that ends one process after another.
        """
        return self.owned.release(names, now)

    def on_lost(self, names: Iterable[TopicPartition], now: float) -> list[Outlived]:
        """Release partitions without a commit; return the calls still running.

        These include calls for copies whose lanes left with a source partition.
        """
        return self.owned.lose(names, now)

    def on_stood_still(self, doubt_s: float, now: float) -> list[Outlived]:
        """Take back unstarted records, then start and commit nothing for ``doubt_s`` seconds.

        Another member may own the partitions by now. Return the calls that were or may have been
        running during the freeze: the last ones begun in each slice.
        """
        self.scheduling.advance_clocks(now)
        return self._ticks.doubt(doubt_s, now)

    def on_halted(
        self,
        name: TopicPartition | None,
        now: float,
        request: PauseRequest = UNNAMED,
        *,
        halted: bool,
    ) -> bool:
        """Pause or resume a partition, or the whole worker for None; see ``pauses``.

        Return False for a partition that is not ours.
        """
        self.scheduling.advance_clocks(now)
        return self.pauses.halt(name, now, request, halted=halted)

    def on_intervention(
        self, name: TopicPartition, offset: int, wanted: Intervention, now: float
    ) -> InterventionResult:
        """Skip or dead-letter one failed record; see ``interventions``."""
        self.scheduling.advance_clocks(now)
        return self.interventions.intervene(name, offset, wanted, now)

    def on_breaker_decision(self, now: float, *, release: bool) -> BreakerAnswer:
        """Obey a user: release the records that the breaker holds, or declare an outage."""
        self.scheduling.advance_clocks(now)
        return self.start_gate.obey_user(now, release=release)

    def on_concurrency(self, request: ConcurrencyRequest, now: float) -> ConcurrencyAnswer:
        """Limit how many slots may be busy from now on; running calls may finish."""
        return self.slot_limit.request(request, now)

    def on_stopping(self, now: float) -> None:
        """Take nothing in and start nothing more; running calls may finish."""
        self.owned.stop(now)

    # ---- questions

    def appetite(self, *, for_copies: bool = False) -> int:
        """How many records to request from the Source now; 0 for none.

        With ``for_copies``, request records even while there is enough work, if copies are
        expected. The client delivers in fetch order, so a due copy comes after everything
        prefetched of the source. The source's windows then fill until it is paused.
        """
        if self.owned.stopping:
            return 0
        return self.demand.appetite(self.partitions.values(), self.budget, for_copies=for_copies)

    @property
    def awaits_ack(self) -> bool:
        """Calls wait for the ack of a commit, so the client should be polled soon."""
        return self.guarantee.awaits_ack

    def wait_s(self, now: float, longest_s: float) -> float:
        """How long the runtime may wait for an event before the next tick, in seconds."""
        return self._ticks.wait_s(now, longest_s)

    # ---- decisions

    def on_tick(self, now: float, wall_ms: float) -> Decisions:
        """Decide what to do now; cheap enough to call after every batch.

        ``wall_ms`` is the same moment in milliseconds since 1970, for the headers of copies.
        """
        self._wall_offset_ms = wall_ms - now * 1000
        return self._ticks.decide(now, wall_ms, self.observer)

    def copy_of(self, failed: FailedRecord) -> Copy:
        """Return the copy of a record that leaves, from ``Decisions.publish`` of the last tick.

        It is made only when it is written: a thousand copies at once would burden the garbage
        collector.
        """
        return self._make_copy(failed, self._wall_offset_ms)


def _raise(error: Exception) -> None:
    raise error
