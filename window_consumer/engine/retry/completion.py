"""What happens to the records of a finished slice: outcomes, next steps, released lanes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from window_consumer.engine.counters import Counters
from window_consumer.engine.guards.circuit_breaker import CircuitBreaker
from window_consumer.engine.observer import Observer
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.call_evidence import CallEvidence, lane_name
from window_consumer.engine.retry.failed_record import FailedRecord, Forward
from window_consumer.engine.retry.output import Output, Production
from window_consumer.engine.retry.policy import PARDONED, RetryGroup, Spent
from window_consumer.engine.retry.queue import RetryQueue
from window_consumer.engine.retry.record_state import RecordState
from window_consumer.engine.retry.regrouping import call_behind, put_back
from window_consumer.engine.scheduling.batch_bisection import died_on
from window_consumer.engine.scheduling.dispatcher import Dispatcher
from window_consumer.engine.scheduling.lanes import NO_HOLD, Lane
from window_consumer.engine.scheduling.slices import RecordsReturned, Slice, SliceResults
from window_consumer.engine.turn import (
    CopyTo,
    DecidedRecord,
    HoldUntil,
    HoldUntilTold,
    Leave,
    Turns,
)
from window_consumer.model.errors import CallAgain, PublishFailedError
from window_consumer.model.fault import Failure, Fault
from window_consumer.model.headers import Reason
from window_consumer.model.outcome import Outcome
from window_consumer.model.record import Message

SINGLY_SHARE = 0.125
"""If this share of a slice's calls returned results, each slice gets one record of a lane."""


class Completion:
    """Processes the results of slots and copies. Owner: poll thread."""

    def __init__(
        self,
        breaker: CircuitBreaker,
        dispatcher: Dispatcher,
        retry_queue: RetryQueue,
        output: Output,
        counters: Counters,
    ):
        self._breaker = breaker
        self._evidence = CallEvidence(breaker)
        self._dispatcher = dispatcher
        self._retry_queue = retry_queue
        self._records = retry_queue.records
        self._output = output
        self._counters = counters
        self._news: list[FailedRecord] = []
        self.observer: Observer | None = None
        self.unacked_probes: set[Slice] = set()
        """The breaker's probes whose results are not acked."""

    def take_news(self) -> list[FailedRecord]:
        """Return the calls that have failed since the last time this was called."""
        news, self._news = self._news, []
        return news

    def complete(self, slice_: Slice, now: float) -> None:
        """Process a slice that a slot has finished."""
        partition = slice_.partition
        if slice_.plain:
            partition.finish(slice_.seqs, Outcome.DONE, slice_.bytes, now)
            self._counters.count(Outcome.DONE, len(slice_.messages))
            self._evidence.returned(slice_, range(len(slice_.messages)), now)
            if slice_.hold is not NO_HOLD:
                slice_.hold.release()
            if self.observer is not None:
                self.observer.finished(partition, slice_.messages, Outcome.DONE, slice_, now)
            if self._output.produces:
                self._learn(slice_, len(slice_.messages), 0, 0)
        else:
            self._settle(slice_, now)
            slice_.hold.release()
        self.advance(partition, now)

    def take_back(self, slice_: Slice, now: float) -> int:
        """Take a slice's unclaimed records back; return how many there were."""
        partition = slice_.partition
        past, unclaimed, seqs = self._dispatcher.split(slice_)
        # Later records of a lane go back before earlier ones, so that the earlier ones end in
        # front.
        if unclaimed and partition.is_assigned:
            self._dispatcher.release_halves(partition)
            if slice_.call.attempt == 1:
                partition.ordering.put_back(unclaimed, seqs)
            else:
                self._retry_queue.not_called([slice_.again[seq] for seq in seqs])
        if past.messages:
            self._settle(past, now)
        slice_.hold.keep({slice_.lane_at(index) for index in range(len(slice_.messages))})
        self.advance(partition, now)
        return len(unclaimed)

    def copied(self, failed: FailedRecord, error: PublishFailedError | None, now: float) -> None:
        """Finish a record whose copy was acked; otherwise keep it open and retry."""
        partition = failed.partition
        partition.let_go(len(failed.message))
        if error is not None:
            self._retry_queue.not_published(failed, error, now)
            return
        if failed.forward is not None:
            outcome = failed.forward.outcome
            if outcome is not None:
                self._counters.count(outcome, 1)
            self._finish(failed, outcome or Outcome.MOVED, now)
        elif failed.level is not None:
            self._counters.count(Outcome.MOVED, 1)
            self._counters.moved_to[failed.level.name] += 1
            self._finish(failed, Outcome.MOVED, now)
        else:
            self._counters.dead_by[str(failed.reason)] += 1
            self._finish(failed, self._outcome_of(failed, Outcome.DEAD_LETTERED), now)
        self.advance(partition, now)

    def crashed(
        self,
        partition: Partition,
        message: Message,
        seq: int,
        failure: Failure,
        times: int,
        now: float,
    ) -> None:
        """Let a record leave on which the process ended ``times`` times; its lane is busy."""
        lane_of = partition.ordering.lane_of
        lane = None if lane_of is None else lane_of(message)
        failed = self._fail(partition, message, seq, lane, failure, now, times)
        self._drop_spent([failed], now)
        self.advance(partition, now)

    def carry_out(self, turns: Turns, now: float) -> None:
        """Carry out what was decided about records before their first calls."""
        decided, turns.decided = turns.decided, []
        holds, turns.holds = turns.holds, []
        left, turns.left = turns.left, []
        turns.was_full = bool(left)
        # What ends here may release a record that is held in the same tick, so that comes first.
        for each in sorted(decided, key=_comes_later):
            each.partition.unreadable.discard(each.message.offset())
            self._end_turn(each, now)
        for hold in holds:
            hold.release()
        for partition in dict.fromkeys(each.partition for each in decided):
            self.advance(partition, now)
        for partition in left:
            self._dispatcher.wake(partition)

    def _end_turn(self, decided: DecidedRecord, now: float) -> None:
        partition, message, seq = decided.partition, decided.message, decided.seq
        turn = decided.turn
        if isinstance(turn, Leave):
            failed = self._fail(partition, message, seq, decided.lane, turn.failure, now)
            self._drop_spent([failed], now)
        elif isinstance(turn, HoldUntil):
            self._fail(partition, message, seq, decided.lane, held(turn.due - now), now)
        elif isinstance(turn, HoldUntilTold):
            self._records.hold_until_told(uncalled(decided, now))
        elif isinstance(turn, CopyTo):
            failed = forwarded(decided, turn, now)
            self._records.enter(failed)
            self._records.move(failed, RecordState.LEAVING)
        else:
            partition.finish((seq,), turn.outcome, len(message), now)
            self._counters.count(turn.outcome, 1)
            if self.observer is not None:
                self.observer.finished(partition, [message], turn.outcome, None, now)

    def abandon(self, slice_: Slice, failure: Failure, now: float) -> None:
        """Let the record of an abandoned call leave; its lane is busy until the call returns."""
        partition = slice_.partition
        self.take_back(slice_, now)
        self._dispatcher.abandon(slice_)
        if slice_.is_batch:
            self._abandon_batch(slice_, failure, now)
            return
        lane = slice_.lane_at(len(slice_.messages) - 1)
        *held, message = slice_.messages
        *held_seqs, seq = slice_.seqs
        if held:
            partition.ordering.put_back(held, held_seqs)
        slice_.messages, slice_.seqs = [message], [seq]
        slice_.settled += 1
        failed = self._retry_queue.add(
            partition, message, seq, lane, failure, now, called_at=slice_.started
        )
        if self._notify_failed(failed).is_dropped:
            self._finish(failed, self._outcome_of(failed, Outcome.DROPPED), now)
        slice_.hold.keep({lane})
        self.advance(partition, now)

    def _abandon_batch(self, slice_: Slice, failure: Failure, now: float) -> None:
        """Let all records of a batch leave: it is unknown on which of them its call hangs."""
        partition = slice_.partition
        together = self._retry_queue.together()
        slice_.settled += len(slice_.messages)
        for index, (message, seq) in enumerate(zip(slice_.messages, slice_.seqs, strict=True)):
            lane = slice_.lane_at(index)
            failed = self._retry_queue.add(
                partition,
                message,
                seq,
                lane,
                failure,
                now,
                together=together,
                called_at=slice_.started,
            )
            if self._notify_failed(failed).is_dropped:
                self._finish(failed, self._outcome_of(failed, Outcome.DROPPED), now)
        self.advance(partition, now)

    def lane_of_running(self, slice_: Slice) -> Hashable:
        """Return the name of the lane of the record that a slot is running; None without order."""
        index = max(0, slice_.claimed() - 1)
        lane = slice_.lane_at(index) if index < len(slice_.messages) else None
        return lane_name(slice_.partition, lane)

    def release(self, slice_: Slice, now: float) -> None:
        """Free the lane of an abandoned call that has returned."""
        slice_.hold.release()
        self.advance(slice_.partition, now)

    def produced(
        self, production: Production, index: int, error: PublishFailedError | None, now: float
    ) -> None:
        """Finish the records of a call once all of its results are acked.

        If one is permanently refused, the call counts as failed.
        """
        output, partition = self._output, production.partition
        if not output.answered(production, index, error):
            return
        if not partition.accepts_results:
            output.over(production)
            self._counters.late += len(production.seqs)
            return
        refusal = output.refusal(production)
        if refusal is None and output.advance(production, now):
            return
        output.over(production)
        if refusal is None:
            self._finish_produced(production, now)
        else:
            self._refused(production, refusal, now)
        production.hold.release()
        if production.source in self.unacked_probes:
            self._breaker.over(production.source)
            self.unacked_probes.remove(production.source)
        self.advance(partition, now)

    def drop(self, failed: FailedRecord, now: float) -> None:
        """Finish a record without a copy."""
        self._finish(failed, self._outcome_of(failed, Outcome.DROPPED), now)
        self.advance(failed.partition, now)

    def skip(self, failed: FailedRecord, now: float) -> None:
        """Finish a failed record that a user skips."""
        self._counters.count(Outcome.SKIPPED, 1)
        self._finish(failed, Outcome.SKIPPED, now)
        self.advance(failed.partition, now)

    def advance(self, partition: Partition, now: float) -> None:
        """Slide, refill and schedule work after something finished or was released."""
        earlier = partition.slide(now)
        if earlier:
            self._counters.count(Outcome.EARLIER, earlier)
        if partition.is_assigned:
            self._dispatcher.wake(partition)
        for sibling in partition.siblings:
            self._dispatcher.wake(sibling)

    def _settle(self, slice_: Slice, now: float) -> None:
        """Give each record of a finished slice its outcome or its next step."""
        partition = slice_.partition
        messages, seqs = slice_.messages, slice_.seqs
        if died_on(slice_):
            # The death says nothing about a single record, so the breaker does not count it.
            self._dispatcher.bisect(slice_)
            return
        results = slice_.results()
        together = self._retry_queue.together() if slice_.is_batch and results.failed else None
        failed: list[FailedRecord] = []
        behind: dict[Lane | None, FailedRecord] = {}
        for index, failure in results.failed:
            lane = slice_.lane_at(index)
            if lane in behind:
                continue
            each = self._fail(
                partition,
                messages[index],
                seqs[index],
                lane,
                failure,
                now,
                together=together,
                called_at=slice_.started,
            )
            # Where a call names the records that failed, others of its batch are done.
            each.in_batch = slice_.is_batch and len(messages) > 1 and not results.done
            failed.append(each)
            waits = lane is not None and each.reason is None
            if together is not None and waits and self._retry_queue.blocks:
                behind[lane] = each
        if behind:
            results = call_behind(slice_, behind, self._retry_queue, now)
        self._drop_spent(failed, now)
        self._finish_called(slice_, results, now)
        self._evidence.called(slice_, [done for done, _ in results.done], failed, now)
        if results.returned or self._output.produces:
            size = sum(self._produce(slice_, *each) for each in results.returned)
            calls = len(messages) - len(results.held)
            producing = sum(len(each) for each, _ in results.returned)
            self._learn(slice_, calls, producing, size)
        if results.held and partition.is_assigned:
            self._dispatcher.release_halves(partition)
            put_back(slice_, results.held, failed, self._retry_queue, now)

    def _finish_called(self, slice_: Slice, results: SliceResults, now: float) -> None:
        """Finish the records whose handler returned or skipped them."""
        partition, messages, seqs = slice_.partition, slice_.messages, slice_.seqs
        observer = self.observer
        for done, returned in results.done:
            partition.finish(done, Outcome.DONE, sum(map(len, returned)), now)
            self._counters.count(Outcome.DONE, len(done))
            if observer is not None:
                observer.finished(partition, returned, Outcome.DONE, slice_, now)
            self._resolve(slice_, done)
        skipped: dict[Outcome, list[Message]] = {}
        for index, outcome in results.skipped.items():
            partition.finish((seqs[index],), outcome, len(messages[index]), now)
            skipped.setdefault(outcome, []).append(messages[index])
            self._resolve(slice_, (seqs[index],))
        for outcome, together in skipped.items():
            self._counters.count(outcome, len(together))
            if observer is not None:
                observer.finished(partition, together, outcome, slice_, now)

    def _resolve(self, slice_: Slice, seqs: Iterable[int]) -> None:
        """Let go of records whose outcome is known, if they had failed before."""
        if slice_.again:
            for seq in seqs:
                self._records.finish(slice_.again[seq])

    def _produce(self, slice_: Slice, indices: Sequence[int], returned: RecordsReturned) -> int:
        """Produce a call's results; return how many bytes they count for."""
        if self._breaker.counts_calls:
            self.unacked_probes.add(slice_)
        seqs = [slice_.seqs[index] for index in indices]
        for seq in seqs if slice_.again else ():
            self._records.move(slice_.again[seq], RecordState.PRODUCING)
        return self._output.add(
            slice_.partition,
            returned,
            seqs,
            [slice_.lane_at(index) for index in indices],
            slice_ if slice_ in self.unacked_probes else None,
        )

    def _learn(self, slice_: Slice, calls: int, producing: int, size: int) -> None:
        """Learn from a slice's calls how much is produced, and by how many of them."""
        self._output.learn(calls, size)
        self._dispatcher.longest = self._output.longest_slice
        # A batch's results are those of one call: its records need not wait for each other.
        singly = producing >= calls * SINGLY_SHARE > 0 and not slice_.is_batch
        slice_.partition.ordering.singly = singly

    def _finish_produced(self, production: Production, now: float) -> None:
        """Finish the records of a call whose results are all acked."""
        partition, seqs = production.partition, production.seqs
        is_new = self._is_new(partition, seqs)
        failed = self._records.of(partition)
        for seq in seqs:
            if seq in failed:
                self._records.finish(failed[seq])
        partition.finish(seqs, Outcome.DONE, sum(map(len, production.messages)), now)
        self._counters.count(Outcome.DONE, len(seqs))
        if self.observer is not None:
            self.observer.finished(partition, production.messages, Outcome.DONE, None, now)
        self._evidence.produced(production, now, is_new=is_new)

    def _refused(self, production: Production, refusal: Failure, now: float) -> None:
        """Move the records of a call up the ladder: one of its results was refused."""
        partition = production.partition
        together = self._retry_queue.together() if len(production.seqs) > 1 else None
        is_new = self._is_new(partition, production.seqs)
        refused = [
            self._fail(partition, message, seq, lane, refusal, now, together=together)
            for message, seq, lane in zip(
                production.messages, production.seqs, production.lanes, strict=True
            )
        ]
        self._drop_spent(refused, now)
        self._evidence.refused(production, refused[0], now, is_new=is_new)

    def _fail(  # noqa: PLR0913 - what a failed call consists of
        self,
        partition: Partition,
        message: Message,
        seq: int,
        lane: Lane | None,
        failure: Failure,
        now: float,
        calls: int = 1,
        together: RetryGroup | None = None,
        called_at: float = 0.0,
    ) -> FailedRecord:
        """Record a failed call of a record, and report it."""
        failed = self._retry_queue.add(
            partition, message, seq, lane, failure, now, calls, together, called_at
        )
        if isinstance(failure.error, CallAgain):
            return failed  # nothing has failed
        self._news.append(failed)
        return self._notify_failed(failed)

    def _notify_failed(self, failed: FailedRecord) -> FailedRecord:
        """Report a failed call to the observer."""
        if self.observer is not None:
            self.observer.failed(failed, failed.last_failure)
        return failed

    def _drop_spent(self, records: Iterable[FailedRecord], now: float) -> None:
        """Drop the spent records that the breaker does not hold, once all failures are recorded."""
        for failed in records:
            if failed.is_dropped and failed.reason not in PARDONED:
                self._finish(failed, self._outcome_of(failed, Outcome.DROPPED), now)

    def _finish(self, failed: FailedRecord, outcome: Outcome, now: float) -> None:
        """Give a failed record its final outcome and release its lane."""
        partition = failed.partition
        self._records.finish(failed)
        partition.finish((failed.seq,), outcome, len(failed.message), now)
        if self.observer is not None:
            self.observer.left(failed, outcome, now)

    def _outcome_of(self, failed: FailedRecord, usually: Outcome) -> Outcome:
        """Return, and count, the final outcome of a record that has left the ladder."""
        outcome = Outcome.EXPIRED if failed.reason is Reason.EXPIRED else usually
        self._counters.count(outcome, 1)
        if outcome is Outcome.DEAD_LETTERED and failed.reason is Reason.UNROUTABLE:
            self._counters.unroutable += 1
        return outcome

    def _is_new(self, partition: Partition, seqs: Iterable[int]) -> bool:
        """Return whether the records of one call were called for the first time."""
        failed = self._records.of(partition)
        return partition.retry_level.level is None and not any(seq in failed for seq in seqs)


def _comes_later(decided: DecidedRecord) -> bool:
    """Return False for a record that is held until told: False comes first."""
    return not isinstance(decided.turn, HoldUntilTold)


def held(after_s: float) -> Failure:
    """Return the failure of a record that is called after ``after_s`` seconds."""
    why = "the record waits for its time"
    return Failure(CallAgain(max(0.0, after_s), why), Fault("", why, "", ""))


def uncalled(decided: DecidedRecord, now: float) -> FailedRecord:
    """Return a record whose first call waits, with the history of one that is called again."""
    return FailedRecord(
        decided.partition,
        decided.message,
        decided.seq,
        decided.lane,
        attempts=1,
        failure=held(0.0),
        first_failure=now,
        last_failure=now,
        uncalled=1,
    )


def forwarded(decided: DecidedRecord, turn: CopyTo, now: float) -> FailedRecord:
    """Return a record that leaves with a copy instead of a call."""
    why = "the record is copied elsewhere"
    return FailedRecord(
        decided.partition,
        decided.message,
        decided.seq,
        decided.lane,
        attempts=0,
        failure=Failure(LookupError(why), Fault("", why, "", "")),
        first_failure=now,
        last_failure=now,
        spent=Spent(turn.reason),
        forward=Forward(turn.copy, turn.outcome),
    )
