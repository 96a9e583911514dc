"""The Engine: all rules of one worker behind one door. Events go in, decisions come out.

The runtime, the simulator and the test kit drive the same Engine. Events only note what
happened; ``on_tick`` then says what to do about all of it, so that a loop that has drained a
hundred completions decides once.

=============== ==================================================== =========================
event           says                                                 answered (in a later tick)
=============== ==================================================== =========================
on_assigned     this partition is ours, from this offset on          commit of the start
on_records      the Source delivered these, in offset order          dispatch, pause
on_completion   a slot is through with a slice                       dispatch, publish, stop
on_published    the broker acked a copy, or did not                  dispatch, publish, stop
on_committed    the broker took a commit, or did not                 commit
on_positions    how far the client has read                          commit
on_revoking     this partition will be given up: start nothing more
on_revoked      it is given up now                                   (returns the last commits)
on_lost         it is gone already
on_stood_still  the whole process did nothing for long               (returns suspect calls)
on_stopping     drain: nothing new is taken in or started
=============== ==================================================== =========================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from window_consumer.core.budget import Budget
from window_consumer.core.commits import CommitState
from window_consumer.core.counters import Counters
from window_consumer.core.decisions import Assigned, Decisions, EngineRules, Hovering, Outlived
from window_consumer.core.dispatcher import COMPANY_S, SLICE_TARGET_S, Dispatcher
from window_consumer.core.failures import Failures
from window_consumer.core.ladder import FailedRecord, Jitter
from window_consumer.core.metadata import MAX_BYTES
from window_consumer.core.ordering import ByKey, ByPartition, Ordering, Unordered
from window_consumer.core.partition import Partition
from window_consumer.core.slices import Lane, Slice
from window_consumer.core.window import Window
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.outcome import Outcome
from window_consumer.model.protocols import Commit, CommitResults
from window_consumer.model.record import Message, TopicPartition

HOUSEKEEPING_S = 0.005
"""How often commits, pauses and hovering cells are looked at."""

SUSPECTS = 20
"""How many calls of a slice are suspected after a standstill: 5 ms of calls of 0.25 ms."""

_SMALLEST_METADATA = 64

_ORDERINGS: dict[str, type[Ordering]] = {
    "unordered": Unordered,
    "key": ByKey,
    "partition": ByPartition,
}


class Engine:
    """One worker's rules, composed. Owner: poll thread."""

    def __init__(self, rules: EngineRules, jitter: Jitter):
        self.rules = rules
        self.counters = Counters()
        self.partitions: dict[TopicPartition, Partition] = {}
        self.budget = Budget(rules.window_bytes, rules.batch_records, rules.cell_records)
        self.dispatcher = Dispatcher(rules.slots)
        self.failures = Failures(rules.retry, jitter, self.counters)
        self.stopping = False
        self._epochs = 0
        self._metadata_bytes = MAX_BYTES
        self._housekeeping_at = 0.0
        self._doubt_until = float("-inf")
        self._hover_reports: dict[TopicPartition, float] = {}
        self._news: list[FailedRecord] = []

    # ---- events

    def on_assigned(self, assignments: Iterable[Assigned], now: float) -> None:
        """Open a window, in a new epoch, for each partition."""
        for assigned in assignments:
            self.on_lost([assigned.name])
            self._epochs += 1
            rules = self.rules
            commit = CommitState(
                assigned.name,
                rules.commit_interval_s,
                assigned.topic_hash,
                assigned.known_partitions,
            )
            if assigned.committed:
                commit.acknowledge_start(*assigned.committed)
            commit.changed = not assigned.committed
            partition = Partition(
                assigned.name,
                self._epochs,
                Window(assigned.next_offset, rules.window_cells, rules.cell_records),
                _ORDERINGS[rules.ordering](),
                commit,
                self.budget,
                assigned.finished,
            )
            partition.closing = self.stopping
            self.partitions[assigned.name] = partition
        self._housekeeping_at = now

    def on_records(self, name: TopicPartition, messages: list[Message], now: float) -> None:
        """Take delivered records, which are in offset order, into the partition's window."""
        partition = self.partitions.get(name)
        count = len(messages)
        self.counters.delivered += count
        if partition is None or partition.closing:
            self.counters.stale += count
            if partition is not None:
                partition.refused_records = True
            return
        unseen = partition.unseen(messages)
        self.counters.stale += count - len(unseen)
        if not unseen:
            return
        size = sum(map(len, unseen))
        self.budget.note(len(unseen), size)
        partition.hold(size)
        if self.budget.used > self.budget.limit:
            self._housekeeping_at = now  # pause before the next batch comes
        if len(unseen) <= partition.window.room and not (
            partition.buffered or partition.commit.tight
        ):
            self._admit(partition, unseen, size, now)
        else:
            partition.put_in_buffer(unseen)
            self._refill(partition, now)

    def on_completion(self, slice_: Slice, now: float) -> None:
        """Read what became of a slice's records."""
        self.dispatcher.back(slice_)
        partition = slice_.partition
        if not partition.owned:
            self.counters.late += len(slice_.messages)
            return
        if slice_.plain:
            partition.finish(slice_.seqs, Outcome.DONE, slice_.bytes, now)
            partition.ordering.release(slice_.lanes)
            self.counters.processed += len(slice_.messages)
        else:
            self._settle(slice_, now)
            still_busy = {lane for lane in slice_.lanes if self._lane_is_out(partition, lane)}
            partition.ordering.release(slice_.lanes, still_busy | partition.failed_lanes)
        self._go_on(partition, now)

    def on_published(
        self, failed: FailedRecord, error: PublishFailedError | None, now: float
    ) -> None:
        """Finish a record whose copy was acked; keep it open and try again otherwise."""
        partition = failed.partition
        partition.publishing -= 1
        self.failures.answered()
        if not partition.owned:
            self.counters.late += 1
            return
        partition.let_go(len(failed.message))
        if error is not None:
            self.failures.not_published(failed, error, now)
            return
        self.counters.dead_lettered += 1
        self._finish_failed(failed, Outcome.DEAD_LETTERED, now)
        self._go_on(partition, now)

    def on_committed(self, results: CommitResults) -> None:
        """Note what became of commits; a refused one is made anew when the next is due."""
        for name, error in results.items():
            partition = self.partitions.get(name)
            if partition is None or not partition.commit.in_flight:
                continue
            if error is None:
                partition.commit.acked()
                self.counters.commits += 1
                continue
            partition.commit.refused()
            self.counters.commit_failures += 1
            if error.metadata_too_large:
                self._metadata_bytes = max(_SMALLEST_METADATA, self._metadata_bytes // 2)

    def on_positions(self, positions: Mapping[TopicPartition, int]) -> None:
        """Note how far the client has read: markers may follow a partition's last record."""
        for name, position in positions.items():
            partition = self.partitions.get(name)
            if partition is not None and position > partition.position:
                partition.position = position
                if partition.idle and position > partition.window.next_offset:
                    partition.commit.changed = True

    def on_revoking(self, names: Iterable[TopicPartition], now: float) -> None:
        """Start nothing more of these partitions; take back what has not started."""
        for name in names:
            partition = self.partitions.get(name)
            if partition is not None and not partition.closing:
                partition.closing = True
                for slice_ in self._slices_of(partition):
                    self._take_back(slice_, now)
                partition.ordering.clear()

    def on_revoked(
        self, names: Iterable[TopicPartition], now: float
    ) -> tuple[list[Commit], list[Outlived]]:
        """Give partitions up; return their last commits and the calls that are still running.

        A partition with nothing running and nothing open ends clean.
        """
        commits = []
        owned = [name for name in names if name in self.partitions]
        for name in owned:
            partition = self.partitions[name]
            commit = self._commit(partition, now, clean=True)
            if commit is not None:
                commits.append(commit)
        return commits, self.on_lost(owned)

    def on_lost(self, names: Iterable[TopicPartition]) -> list[Outlived]:
        """Give partitions up without a commit; return the calls that are still running."""
        outlived = []
        for name in names:
            partition = self.partitions.pop(name, None)
            if partition is None:
                continue
            for slice_ in self._slices_of(partition):
                slice_.call.cancelled = True
                self.dispatcher.split(slice_)
                message = slice_.running()
                if message is not None:
                    outlived.append(Outlived(name, message.offset(), message.key()))
            self.dispatcher.forget(partition)
            self._hover_reports.pop(name, None)
            partition.give_up()
        self.counters.outlived += len(outlived)
        return outlived

    def on_stood_still(self, doubt_s: float, now: float) -> list[Outlived]:
        """Take back what has not started, and start and commit nothing for ``doubt_s``.

        Somebody else may own the partitions by now. Returns the calls that were running
        meanwhile, or may have been: of each slice the last ones that were begun.
        """
        self._doubt_until = now + doubt_s
        suspects: list[Outlived] = []
        for slice_ in list(self.dispatcher.out):
            partition = slice_.partition
            if not partition.owned:
                continue
            begun = slice_.messages[: slice_.claimed()] if slice_.started else []
            suspects.extend(
                Outlived(partition.name, message.offset(), message.key())
                for message in begun[-SUSPECTS:]
            )
            # A record that is called again is alone in its slice and stays there.
            if slice_.call.attempt == 1 and not partition.closing:
                self._take_back(slice_, now)
        return suspects

    def on_stopping(self, now: float) -> None:
        """Take nothing in and start nothing any more; what runs may finish."""
        self.stopping = True
        self.on_revoking(list(self.partitions), now)

    # ---- questions

    def busy(self, names: Iterable[TopicPartition]) -> bool:
        """Tell whether anything of these partitions is running or waits for an ack."""
        return any(self.partitions[name].busy for name in names if name in self.partitions)

    @property
    def waiting_for_results(self) -> bool:
        """A slot or the broker will report something without being asked again."""
        return bool(self.dispatcher.out or self.failures.unacked)

    def unfinished(self) -> int:
        """Return how many delivered records have no final outcome."""
        return sum(each.window.open + each.buffered for each in self.partitions.values())

    def appetite(self) -> int:
        """How many records to ask the Source for now, 0 for none."""
        if self.stopping or not self.dispatcher.hungry:
            return 0
        if self.partitions and not self.budget.wanted(self.partitions.values()):
            return 0
        return self.budget.batch_records()

    def wait_s(self, now: float, longest_s: float) -> float:
        """How long the runtime may wait for an event before the next tick."""
        if self.dispatcher.held_back:
            longest_s = min(longest_s, COMPANY_S)
        elif self.waiting_for_results:
            longest_s = min(longest_s, SLICE_TARGET_S)
        due = self.failures.next_due()
        return longest_s if due is None else max(0.0, min(longest_s, due - now))

    # ---- decisions

    def on_tick(self, now: float) -> Decisions:
        """Decide what to do now; cheap enough to be called after every batch."""
        decisions = Decisions(failed=self._news)
        self._news = []
        for slice_ in self.dispatcher.slow(now):
            self.counters.taken_back += self._take_back(slice_, now)
        self.failures.look_at_clock(now)
        if now >= self._doubt_until:
            self._start(decisions, now)
        decisions.stop = self.failures.stop
        if now >= self._housekeeping_at:
            self._housekeeping_at = now + HOUSEKEEPING_S
            for partition in self.partitions.values():
                self._keep_house(partition, decisions, now)
                self._keep_watch(partition, decisions, now)
        return decisions

    def _start(self, decisions: Decisions, now: float) -> None:
        """Hand out what may start, and what leaves."""
        while not self.dispatcher.full and (failed := self.failures.next_call()):
            decisions.dispatch.append(self.dispatcher.again(failed, now))
        decisions.dispatch.extend(self.dispatcher.slices(now))
        for failed in self.failures.to_publish(self.budget):
            failed.partition.publishing += 1
            decisions.publish.append(failed)

    def _keep_house(self, partition: Partition, decisions: Decisions, now: float) -> None:
        """Refill, pause, resume and commit, unless the partition is about to be given up."""
        if partition.closing:
            return
        everyone = self.partitions.values()
        name = partition.name
        if partition.buffered:
            self._refill(partition, now)
        if self.budget.should_pause(partition, everyone):
            partition.paused = True
            decisions.pause.append(name)
        elif self.budget.should_resume(partition, everyone):
            partition.paused = False
            decisions.resume.append((name, partition.next_delivery))
        if partition.commit.due(now) and now >= self._doubt_until:
            commit = self._commit(partition, now, clean=False)
            if commit is not None:
                decisions.commit.append(commit)

    def _keep_watch(self, partition: Partition, decisions: Decisions, now: float) -> None:
        """Report a start cell that hovers."""
        name = partition.name
        since = partition.window.hovering_since()
        reported = self._hover_reports.get(name, float("-inf"))
        if since is not None and now - max(since, reported) >= self.rules.hover_s:
            self._hover_reports[name] = now
            decisions.hovering.append(self._describe_hovering(partition, now - since))

    @staticmethod
    def _describe_hovering(partition: Partition, age_s: float) -> Hovering:
        seq = partition.window.cells[0].first_open_seq()
        failed = partition.failed.get(seq)
        offset = partition.window.offsets.offset_of(seq)
        return Hovering(partition.name, offset, failed.attempts + 1 if failed else 1, age_s)

    # ---- rules

    def _commit(self, partition: Partition, now: float, *, clean: bool) -> Commit | None:
        """Take one snapshot of offset and ranges.

        The client's position counts only where nothing is in the window and everything up to it
        was taken in: transaction markers may follow the last record.
        """
        next_offset = partition.window.next_offset
        nothing_is_left = partition.idle and not partition.window.cells
        if nothing_is_left and not partition.refused_records:
            next_offset = max(next_offset, partition.position)
        beyond = (
            each if each.start >= next_offset else range(next_offset, each.stop)
            for each in partition.finished_ranges()
            if each.stop > next_offset
        )
        return partition.commit.make(next_offset, beyond, now, self._metadata_bytes, clean=clean)

    def _admit(self, partition: Partition, messages: list[Message], size: int, now: float) -> None:
        earlier = partition.admit(messages, size, now)
        if earlier:
            # Nothing else may be left to finish that would let the window slide.
            self.counters.earlier += earlier
            partition.window.slide(now)
        self.dispatcher.wake(partition)

    def _refill(self, partition: Partition, now: float) -> None:
        """Move buffered records into the window while it has room."""
        while partition.buffered and not partition.closing and not partition.commit.tight:
            room = partition.window.room
            if not room:
                return
            messages = partition.take_from_buffer(room)
            self._admit(partition, messages, sum(map(len, messages)), now)

    def _go_on(self, partition: Partition, now: float) -> None:
        """Slide, refill and look for work after something was finished or released."""
        partition.window.slide(now)
        if partition.buffered:
            self._refill(partition, now)
        if not partition.closing:
            self.dispatcher.wake(partition)

    def _settle(self, slice_: Slice, now: float) -> None:
        """Give each record of a slice that is over its outcome or its next step."""
        partition = slice_.partition
        messages, seqs = slice_.messages, slice_.seqs
        results = slice_.results()
        for done, size in results.done:
            partition.finish(done, Outcome.DONE, size, now)
            self.counters.processed += len(done)
        for index in results.skipped:
            partition.finish((seqs[index],), Outcome.SKIPPED, len(messages[index]), now)
            self.counters.skipped += 1
        if slice_.call.attempt > 1 and not results.failed:
            for seq in seqs:
                partition.forget_failure(seq)
        for index, failure in results.failed:
            lane = self._lane(slice_, index)
            failed = self.failures.add(partition, messages[index], seqs[index], lane, failure, now)
            self._news.append(failed)
            if failed.reason is not None and self.rules.retry.when_spent == "drop":
                self.counters.dropped += 1
                self._finish_failed(failed, Outcome.DROPPED, now)
        if results.held and not partition.closing:
            held = results.held
            partition.ordering.put_back([messages[i] for i in held], [seqs[i] for i in held])

    def _take_back(self, slice_: Slice, now: float) -> int:
        """Take a slice's unclaimed records back; return how many they were."""
        partition = slice_.partition
        past, unclaimed, seqs = self.dispatcher.split(slice_)
        # Later records of a lane go back before earlier ones, so that those end up in front.
        if unclaimed and not partition.closing:
            partition.ordering.put_back(unclaimed, seqs)
        if past.messages:
            self._settle(past, now)
        running = [self._lane(slice_, index) for index in range(len(slice_.messages))]
        partition.ordering.release(slice_.lanes, partition.failed_lanes.union(running))
        slice_.lanes = [lane for lane in running if lane is not None]
        self._go_on(partition, now)
        return len(unclaimed)

    def _finish_failed(self, failed: FailedRecord, outcome: Outcome, now: float) -> None:
        """Give a record that failed its final outcome and free its lane."""
        partition = failed.partition
        partition.forget_failure(failed.seq)
        partition.finish((failed.seq,), outcome, len(failed.message), now)
        if failed.lane is not None and not self._lane_is_out(partition, failed.lane):
            partition.ordering.release((failed.lane,))

    def _lane_is_out(self, partition: Partition, lane: Lane) -> bool:
        """Tell whether a slot still holds a record of a lane.

        After a take-back a slot may have claimed a record that it is about to hold back because
        an earlier one of its lane failed; only that slice's completion frees the lane.
        """
        return any(slice_.settled and lane in slice_.lanes for slice_ in self._slices_of(partition))

    @staticmethod
    def _lane(slice_: Slice, index: int) -> Lane | None:
        if slice_.lane_of is not None:
            return slice_.lane_of(slice_.messages[index])
        failed = slice_.partition.failed.get(slice_.seqs[index])
        return failed.lane if failed else None

    def _slices_of(self, partition: Partition) -> list[Slice]:
        return [slice_ for slice_ in self.dispatcher.out if slice_.partition is partition]
