"""Watches commits: what they cover when sent, and what the group knows afterwards."""

from __future__ import annotations

from collections.abc import Sequence

from window_consumer.engine.commits.commit_metadata import CommitNote, decode
from window_consumer.model.protocols import Commit
from window_consumer.simulator.history import SimulationHistory
from window_consumer.simulator.log_history import LogLedger, Member, Tenure
from window_consumer.simulator.schedule import GROUP
from window_consumer.testing.fakes.group import Applied


class CommitWatch:
    """Checks every commit that a member sends and that the broker accepts. Owner: one thread."""

    def __init__(self, history: SimulationHistory):
        self._history = history
        history.catch_up = self.catch_up
        self._sent: dict[int, tuple[Commit, Tenure]] = {}
        self._seen = 0
        self.metadata_is_cut = False
        """The broker accepts less metadata than usual: finished ranges may be left out."""

    def sending(self, member: Member, commits: Sequence[Commit]) -> None:
        """Check commits that a member sends."""
        history = self._history
        for commit in commits:
            if history.trace is not None:
                history.record(f"{member} commits {_shown(commit)}")
            tenure = history.latest(member, commit.name)
            if commit.name not in member.source.held or tenure is None:
                history.violate(f"{member} commits {commit.name}, which it does not hold")
                continue
            self._sent[id(commit)] = (commit, tenure)
            tenure.sent.append(commit)
            if tenure.ledger.log is history.broker.topics.log(commit.name):
                self._check(tenure, commit)

    def _check(self, tenure: Tenure, commit: Commit) -> None:
        violate = self._history.violate
        note = decode(commit.metadata)
        if note is None or note.next_offset != commit.next_offset:
            violate(f"{_shown(commit)}: metadata and offset do not belong together")
            return
        if commit.next_offset < tenure.committed_to and self._history.plan.repeats:
            violate(f"{_shown(commit)} goes back: {tenure.committed_to} was sent before")
        for offset, record in tenure.ledger.records.items() if self._history.plan.repeats else ():
            if offset < tenure.start or tenure.is_over(offset):
                continue
            if self._history.is_over(tenure, offset) and covers(note, offset):
                self._history.dropped(tenure, record)
                continue
            if record.reborn or (record.excused and offset not in tenure.delivered):
                continue
            if covers(note, offset):
                violate(f"{_shown(commit)} covers {offset}, which has no final outcome")
                return
        tenure.committed_to = commit.next_offset

    def catch_up(self) -> None:
        """Process the commits that the broker has accepted since the last call."""
        applied = self._history.broker.group(GROUP).applied
        for each in applied[self._seen :]:
            log = self._history.broker.topics.log(each.commit.name)
            if log is not None:
                self._apply(each, self._history.ledger(log))
        self._seen = len(applied)

    def _apply(self, applied: Applied, ledger: LogLedger) -> None:
        commit = ledger.entry = applied.commit
        if applied.member is None:
            self._history.excuse(ledger, commit.next_offset, "an administrator moved the offset")
            ledger.durable = {offset for offset in ledger.records if offset < commit.next_offset}
            return
        if id(commit) not in self._sent:
            return  # sending it broke a promise, which was recorded then
        tenure = self._sent[id(commit)][1]
        note = decode(commit.metadata)
        if tenure.ledger is not ledger or note is None:
            return
        covered = {offset for offset in ledger.records if covers(note, offset)}
        records, repeats = ledger.records, self._history.plan.repeats
        forgotten = [
            o
            for o in ledger.durable - covered
            if not records[o].excused and (repeats or records[o].called or records[o].handled)
        ]
        if forgotten and not tenure.restarted and not self.metadata_is_cut:
            self._history.violate(
                f"{_shown(commit)} forgets that {sorted(forgotten)} had finished, which was"
                " committed before"
            )
        ledger.durable = covered


def covers(note: CommitNote, offset: int) -> bool:
    """Return whether a commit counts a record as finished."""
    return offset < note.next_offset or any(offset in run for run in note.finished)


def _shown(commit: Commit) -> str:
    note = decode(commit.metadata)
    finished = [f"{run.start}..{run.stop - 1}" for run in note.finished] if note else "?"
    return f"{commit.name} to {commit.next_offset}, finished beyond: {finished}"
