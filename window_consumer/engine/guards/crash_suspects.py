"""Suspects: records that may have ended the process, started one at a time and named beforehand.

A partition whose last ends were unclean (see ``crash_history``) starts nothing by itself. Its
records leave the ordering as always, but each waits until a commit that names it is acked and no
other call of the partition is in progress, retries included. If the process ends again, the next
owner then knows which record was running. Once the process has ended on a record ``crash_attempts``
times, the record is not started again: it leaves with reason CRASHED.

Other partitions proceed in the meantime, and one of them may hold the culprit. So a charged record
starts only while nothing else of the worker is running or named: an innocent record then passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from window_consumer.engine.guards.crash_history import CrashHistory
from window_consumer.engine.partition import Partition
from window_consumer.engine.partition_state import HoldReason
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.failed_records import FailedRecords
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.engine.retry.record_outcomes import RecordOutcomes
from window_consumer.engine.retry.record_state import RecordState
from window_consumer.engine.scheduling.dispatcher import Dispatcher
from window_consumer.engine.scheduling.lanes import NO_HOLD, LaneHold
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import ProcessCrashedError
from window_consumer.model.fault import Failure, Fault
from window_consumer.model.record import Message

ALONE_S = 60.0
"""How long the rest of a worker waits for a charged record to start and end. This covers most
handlers; one that hangs must not block the others for ever."""


class Candidate:
    """A record that has left its ordering and waits until it may start."""

    def __init__(self, partition: Partition, message: Message, seq: int, hold: LaneHold):
        self.partition = partition
        self.message = message
        self.seq = seq
        self.hold = hold
        self.offset: int = message.offset()
        self.failed: FailedRecord | None = None
        """Set if it was called before in this assignment."""

    @classmethod
    def again(cls, failed: FailedRecord) -> Candidate:
        """Make a candidate of a failed record that is due again."""
        candidate = cls(failed.partition, failed.message, failed.seq, NO_HOLD)
        candidate.failed = failed
        return candidate


class SuspectCase:
    """One partition with suspects. Owner: poll thread."""

    def __init__(self, partition: Partition, crash_history: CrashHistory):
        self.partition = partition
        self.crash_history = crash_history
        self.candidate: Candidate | None = None
        self.slice_: Slice | None = None
        """The slice of the candidate, once started."""
        self.passed: set[int] = set()
        """Offsets that were started, or left, since the assignment."""
        self.ending = False
        """All suspects have passed; a commit must show that no record is named now."""

    @property
    def charged(self) -> bool:
        """The process has already ended on the candidate."""
        return self.candidate is not None and self.candidate.offset in self.crash_history.crashes

    @property
    def is_held(self) -> bool:
        """The candidate may not start: another member owns its lane, or it is paused."""
        return self.partition.is_suspended and not self.running

    @property
    def running(self) -> bool:
        """The candidate was started and its slice is in progress."""
        return self.slice_ is not None

    def is_suspect(self, offset: int) -> bool:
        """Return whether a record that may start now must start alone."""
        crash_history = self.crash_history
        if len(self.passed) < crash_history.limit and offset < crash_history.log_end:
            return True
        return any(self._is_pending(each) for each in crash_history.crashes)

    def end_call(self) -> None:
        """Release the candidate; it has not passed if its slice was taken back whole."""
        slice_, candidate = self.slice_, self.candidate
        self.slice_ = self.candidate = None
        if slice_ is not None and candidate is not None and slice_.is_empty:
            self.passed.discard(candidate.offset)

    @property
    def none_left(self) -> bool:
        """Everything that was in the log at the start has been delivered and is finished."""
        partition = self.partition
        return partition.idle and partition.next_delivery >= self.crash_history.log_end

    def _is_pending(self, offset: int) -> bool:
        """Return whether a record with crashes will still start in this assignment."""
        window = self.partition.window
        if offset in self.passed or offset < window.next_offset:
            return False
        if offset >= window.offsets.next_offset:
            return offset < self.crash_history.log_end
        seq = window.offsets.seq_of(offset)
        return window.offsets.offset_of(seq) == offset and window.is_open(seq)


class CrashSuspects:
    """Starts the suspects of one worker. Owner: poll thread."""

    def __init__(
        self,
        rules: RetryRules,
        dispatcher: Dispatcher,
        failed_records: FailedRecords,
        outcomes: RecordOutcomes,
    ):
        self._rules = rules
        self._dispatcher = dispatcher
        self._failed_records = failed_records
        self._outcomes = outcomes
        self._alone: SuspectCase | None = None
        """The case whose record has the whole worker, or waits for it."""
        self._alone_since = 0.0
        self.cases: dict[Partition, SuspectCase] = {}
        """Partitions that start nothing by themselves; normally there is none."""

    def begin(self, partition: Partition, crash_history: CrashHistory) -> None:
        """Control the starts of a new assignment until its suspects have passed."""
        partition.commit.crash_history = crash_history
        partition.set_hold(HoldReason.CRASH_SUSPECTS, held=True)
        self.cases[partition] = SuspectCase(partition, crash_history)

    def remove(self, partition: Partition) -> None:
        """Stop controlling a partition's starts: it is being released, or no suspects are left."""
        case = self.cases.pop(partition, None)
        if case is not None:
            case.crash_history.settled = True
            if self._alone is case:
                self._alone = None

    def holds_the_worker(self, now: float) -> bool:
        """Return whether nothing else of the worker may start now."""
        return self._alone is not None and now - self._alone_since < ALONE_S

    @property
    def awaits_commit(self) -> bool:
        """A commit must be acked before anything proceeds."""
        return any(case.crash_history.awaits_commit for case in self.cases.values())

    def slices(self, now: float) -> Iterator[Slice]:
        """Yield the slices, of one record each, that may go out now."""
        for case in list(self.cases.values()):
            self._advance(case, now)
        if self._alone is not None and self._alone.is_held:
            self._alone = None
        if self._alone is None:
            charged = (each for each in self.cases.values() if each.charged and not each.is_held)
            self._alone = next(charged, None)
            self._alone_since = now
        held = self.holds_the_worker(now)
        for case in self.cases.values():
            candidate = case.candidate
            waits = case.is_held or (held and case is not self._alone and not case.running)
            if candidate is None or waits:
                case.crash_history.wanted = None
                continue
            case.crash_history.wanted = candidate.offset
            if not case.running and self._may_start(case, candidate, held=held):
                case.passed.add(candidate.offset)
                case.slice_ = self._send(candidate, now)
                yield case.slice_

    def _may_start(self, case: SuspectCase, candidate: Candidate, *, held: bool) -> bool:
        if self._dispatcher.full or not case.crash_history.names(candidate.offset):
            return False
        rates = self._dispatcher.rates
        if rates is not None and not rates.may_start(candidate.partition, candidate.message):
            return False
        if not held:
            return True
        running = any(slice_.partition.accepts_results for slice_ in self._dispatcher.out)
        others = (other for other in self.cases.values() if other is not case)
        return not running and all(other.crash_history.names_nobody for other in others)

    def _send(self, candidate: Candidate, now: float) -> Slice:
        if candidate.failed is not None:
            self._failed_records.start([candidate.failed])
            return self._dispatcher.again([candidate.failed], now)
        return self._dispatcher.alone(
            candidate.partition, candidate.message, candidate.seq, candidate.hold, now
        )

    def _advance(self, case: SuspectCase, now: float) -> None:
        """Release a finished candidate, and find the next one."""
        partition = case.partition
        if case.running and not partition.slices:
            case.end_call()
            if self._alone is case:
                self._alone = None
        if case.running or not case.crash_history.counted:
            return
        if not case.ending and case.candidate is None:
            self._find_next(case, now)
        if case.ending and case.crash_history.names_nobody:
            self._end(case)

    def _find_next(self, case: SuspectCase, now: float) -> None:
        if not case.crash_history.careful or case.none_left:
            self._begin_to_end(case, now)
            return
        if held := self._failed_records.held(case.partition):
            failed = next(iter(held))
            self._failed_records.move(failed, RecordState.CHOSEN)
            case.candidate = Candidate.again(failed)
            return
        ordering = case.partition.ordering.unpaced
        while (taken := ordering.take(1)) is not None:
            run, hold = taken
            candidate = Candidate(case.partition, run.messages[0], run.seqs[0], hold)
            if not case.is_suspect(candidate.offset):
                ordering.put_back(run.messages, run.seqs)
                hold.release()
                self._begin_to_end(case, now)
                return
            times = case.crash_history.crashes.get(candidate.offset, 0)
            if times < self._rules.crash_attempts:
                case.candidate = candidate
                return
            case.passed.add(candidate.offset)
            failure = crashed(candidate.offset, times)
            self._outcomes.crashed(
                case.partition, candidate.message, candidate.seq, failure, times, now
            )
            hold.release()
            self._outcomes.advance(case.partition, now)  # siblings may wait for its lane
            if self._rules.when_spent == "stop":
                # A user will fix the record: after a restart it should be called again.
                del case.crash_history.crashes[candidate.offset]
                return

    def _begin_to_end(self, case: SuspectCase, now: float) -> None:
        case.ending = True
        case.crash_history.wanted = None
        case.crash_history.passed(now)

    def _end(self, case: SuspectCase) -> None:
        """Let a partition start by itself again."""
        partition = case.partition
        self.remove(partition)
        partition.set_hold(HoldReason.CRASH_SUSPECTS, held=False)
        self._failed_records.call_held(partition)
        self._dispatcher.wake(partition)


def crashed(offset: int, times: int) -> Failure:
    """Return the failure of a record on which the process ended: there is no stack."""
    error = ProcessCrashedError(
        f"the process ended {times} times while offset {offset} was the only record of its"
        " partition that ran; it left no exception and no stack (a crash in native code, out of"
        " memory, or a kill)"
    )
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}"
    fingerprint = blake2b(name.encode(), digest_size=8).hexdigest()
    return Failure(error, Fault(name, str(error), "", fingerprint))
