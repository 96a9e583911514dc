"""Watches transactions: outputs and the offsets of their records become visible together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from window_consumer.engine.commits.commit_metadata import CommitNote, decode
from window_consumer.model.protocols import Commit, Copy
from window_consumer.model.record import TopicPartition
from window_consumer.simulator.history import SimulationHistory
from window_consumer.simulator.log_history import Member, Tenure
from window_consumer.simulator.watches.commits import covers

RecordOf = Callable[[Copy], tuple[Tenure, int]]
"""Returns the assignment and the offset of the record that an output belongs to."""


class TransactionWatch:
    """Checks each transaction that is committed. Owner: one thread."""

    def __init__(self, history: SimulationHistory, record_of: RecordOf):
        self._history = history
        self._record_of = record_of
        self._hidden: dict[Tenure, set[int]] = {}
        """Records with outputs in transactions that are open or were aborted."""

    def written(self, copy: Copy) -> None:
        """Record that an output is written into an open transaction."""
        tenure, offset = self._record_of(copy)
        self._hidden.setdefault(tenure, set()).add(offset)

    def committing(self, member: Member, copies: Sequence[Copy], commits: Sequence[Commit]) -> None:
        """Check outputs and commits that become visible now."""
        history = self._history
        history.catch_up()
        notes = {each.name: decode(each.metadata) for each in commits}
        outputs = dict.fromkeys(map(self._record_of, copies))
        for tenure, offset in outputs:
            self._hidden[tenure].discard(offset)
            self._check_output(member, tenure, offset, notes)
        for name, note in notes.items():
            latest = history.latest(member, name)
            hidden = set() if latest is None else self._hidden.get(latest, set())
            late = sorted(offset for offset in hidden if note is not None and covers(note, offset))
            if late:
                history.violate(f"{name}: {late} are committed without their outputs")

    def _check_output(
        self,
        member: Member,
        tenure: Tenure,
        offset: int,
        notes: dict[TopicPartition, CommitNote | None],
    ) -> None:
        history, ledger = self._history, tenure.ledger
        place = f"{tenure.name}@{offset}"
        record = ledger.records.get(offset)
        is_gone = history.broker.topics.log(tenure.name) is not ledger.log
        if record is None or record.excused or is_gone:
            return  # the log was cut or recreated
        if offset in ledger.durable:
            history.violate(f"{place}: it has an output although it had finished and was committed")
        note = notes.get(tenure.name)
        is_latest = history.latest(member, tenure.name) is tenure
        if note is None or not is_latest or not covers(note, offset):
            history.violate(f"{place}: its output is committed, but it is not")
