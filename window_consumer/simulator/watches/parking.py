"""Watches the order that parking promises."""

from __future__ import annotations

from window_consumer.model.record import TopicPartition
from window_consumer.simulator.history import SimulationHistory
from window_consumer.simulator.log_history import KnownRecord, SimulatedCall


class ParkWatch:
    """Checks that a record's first call comes after the end of all before it. Owner: one thread.

    Later calls, after a rewind, are not judged.
    """

    def __init__(self, history: SimulationHistory):
        self._history = history
        self._parks = history.plan.engine.retry.on_failure == "park"
        self._called: set[tuple[TopicPartition, int]] = set()
        self._ended: set[tuple[TopicPartition, int]] = set()

    def begins(self, call: SimulatedCall) -> None:
        """Judge the start of a call."""
        hop = call.record.hop
        record = hop.origin, hop.offset
        if not self._parks or call.lane is None or record in self._called:
            return
        self._called.add(record)
        ledger = self._history.ledger(self._history.broker.log(*hop.origin))
        for offset, each in ledger.records.items():
            is_before = offset < hop.offset and each.message.key() == call.lane
            if is_before and (hop.origin, offset) not in self._ended:
                self._history.violate(
                    f"{hop.origin}@{hop.offset} of key {call.lane!r} is called before {offset} has"
                    " ended"
                )

    def ended(self, record: KnownRecord) -> None:
        """Record the end of a record: its handler has returned, or it is dead or dropped."""
        if self._parks:
            self._ended.add((record.hop.origin, record.hop.offset))
