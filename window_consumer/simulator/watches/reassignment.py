"""Watches partitions that are lost and come back: finished records rarely run again.

It knows who wrote the committed entry; members can only read its contents.
"""

from __future__ import annotations

from collections.abc import Sequence

from window_consumer.engine.commits.commit_metadata import decode
from window_consumer.engine.commits.commit_state import REMEMBERED_COMMITS
from window_consumer.engine.commits.lost_partitions import KEPT_S
from window_consumer.model.protocols import CommittedOffset
from window_consumer.model.record import TopicPartition
from window_consumer.simulator.history import SimulationHistory
from window_consumer.simulator.log_history import LostAssignment, Member, SimulatedCall, Tenure


class ReassignmentWatch:
    """Checks that the outcomes of lost assignments are kept. Owner: one thread."""

    def __init__(self, history: SimulationHistory):
        self._history = history
        history.begins = self.begins

    def losing(self, member: Member, names: Sequence[TopicPartition]) -> None:
        """Record the finished offsets of partitions that a member loses."""
        history = self._history
        if history.plan.engine.ordering != "unordered" or not member.engine.guarantee.recalls_lost:
            return
        for name in names:
            tenure = history.tenure(member, name)
            if tenure is None:
                continue
            window = tenure.partition.window
            ranges = [range(window.next_offset), *tenure.partition.finished_ranges()]
            known = {*tenure.delivered, *tenure.durable, *tenure.kept}
            finished = {o for o in known if any(o in each for each in ranges)}
            finished = {o for o in finished if history.is_over(tenure, o)}
            tenure.lost = LostAssignment(history.now(), finished)

    def begins(self, tenure: Tenure, before: Tenure | None, committed: CommittedOffset) -> None:
        """Check a new assignment; ``before`` is its member's previous one of the partition."""
        if before is not None and before.lost is not None and before.ledger is tenure.ledger:
            self._recall(tenure, before, before.lost, committed)
        first = committed.next_offset
        if tenure.restarted or first is None or first >= tenure.start:
            return
        for offset, record in tenure.ledger.records.items():
            over = record.excused or tenure.is_over(offset)
            if first <= offset < tenure.start and not over:
                self._history.violate(
                    f"{tenure.member} begins {tenure.name} at {tenure.start}: {offset} has no"
                    " final outcome"
                )

    def _recall(
        self, tenure: Tenure, before: Tenure, lost: LostAssignment, committed: CommittedOffset
    ) -> None:
        ledger, entries = tenure.ledger, [before.entry, *before.sent]
        said = {(each.next_offset, each.metadata) for each in entries if each is not None}
        if (committed.next_offset, committed.metadata) not in said or tenure.restarted:
            return
        tenure.kept = lost.finished
        for offset in lost.finished:
            if not before.is_over(offset):
                # It was dropped without a call, and no commit has covered it yet.
                self._history.dropped(before, before.delivered[offset])
        note, entry = decode(committed.metadata), ledger.entry
        recent = [before.entry, *before.sent[-REMEMBERED_COMMITS:]]
        if (
            any(entry is each for each in recent)
            and note is not None
            and note.next_offset == committed.next_offset
            and not ledger.doubtful
            and ledger.excused_below == before.excused_below
            and self._history.now() < lost.at + KEPT_S
        ):
            tenure.never_again = lost.finished

    def starts(self, call: SimulatedCall) -> None:
        """Check a handler call that begins."""
        tenure = call.tenure
        if call.offset in tenure.never_again:
            self._history.violate(
                f"{tenure.name}@{call.offset} had finished on {tenure.member} before the partition"
                " was lost, nobody else has committed, and it runs again"
            )
