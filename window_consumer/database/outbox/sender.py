"""Sends rows to Kafka, a batch at a time: every row has a result before its lock is released.

The relay has its own clients: ``Producer`` retries outstanding records without limit, and another
relay might send later rows of the key in the meantime. There is one per lane, because its
transactional id fences out a relay that was frozen.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from attrs import frozen

from window_consumer.database.outbox.row import OutboxRow
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.oauth import OauthToken
from window_consumer.kafka.writing.batch_answers import Answer
from window_consumer.kafka.writing.batch_sending import BatchSender
from window_consumer.model.protocols import Copy

_TIMEOUT_S: Final = 2.5


@frozen
class RelayTurn:
    """The right to send in a lane."""

    transactional_id: str
    """The lane's transactional id, the same in all relays of the table."""
    check_lock: Callable[[], object]
    """Raises if the lane's lock has been lost."""


class RowsInFlight(Protocol):
    """Rows that are being sent."""

    def answers(self, within_s: float) -> Sequence[Answer]:
        """Return a result for each row, in their order.

        Rows without a result after ``within_s`` are no longer sent. Raises FencedError if another
        relay has taken over.
        """


@frozen
class BatchResult:
    """What Kafka has done with the rows of a batch."""

    acked: list[uuid.UUID]
    refused: list[tuple[OutboxRow, str]]
    """Rows that it will never take, and why."""
    silent: Mapping[str, str]
    """Topics that have acknowledged nothing, and why."""

    @classmethod
    def of(
        cls, rows: Sequence[OutboxRow], answers: Sequence[Answer], *, blocks: bool
    ) -> BatchResult:
        """Return what the answers say: of each key, only the rows before the first failed one.

        Rows behind a refused one of their key count only if it does not block them.
        """
        if not any(answers):
            return cls([row.id for row in rows], [], {})
        acked: list[uuid.UUID] = []
        refused: list[tuple[OutboxRow, str]] = []
        open_keys: set[tuple[str, bytes]] = set()
        silent: dict[str, str] = {}
        answering: set[str] = set()
        for row, answer in zip(rows, answers, strict=True):
            if row.order_key in open_keys:
                continue
            if answer is None:
                answering.add(row.topic)
                acked.append(row.id)
                continue
            if answer.refused:
                answering.add(row.topic)
                refused.append((row, answer.why))
            else:
                silent[row.topic] = answer.why
            if row.order_key is not None and (blocks or not answer.refused):
                open_keys.add(row.order_key)
        # A topic that acknowledged other rows is available; the batch only ran out of time.
        left = {topic: why for topic, why in silent.items() if topic not in answering}
        return cls(acked, refused, left)


class OutboxSender(Protocol):
    """Sends batches. Owner: the relay's thread."""

    def begin(self, rows: Sequence[OutboxRow], timeout_s: float, turn: RelayTurn) -> RowsInFlight:
        """Begin to send rows in order; connecting takes ``timeout_s`` at most.

        Raises what ``turn.check_lock`` raises.
        """


class KafkaOutboxSender:
    """Sends with one client per lane."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        log: ClientLog,
        oauth_token: OauthToken | None = None,
        *,
        holds_keys: bool = True,
    ):
        """With ``holds_keys`` no row is sent after a refused row of its key."""
        self._properties = properties
        self._log = log
        self._oauth_token = oauth_token
        self._holds_keys = holds_keys
        self._lanes: dict[str, BatchSender] = {}

    def begin(self, rows: Sequence[OutboxRow], timeout_s: float, turn: RelayTurn) -> RowsInFlight:
        """See OutboxSender."""
        copies = [
            Copy(row.topic, row.partition, row.key, row.payload, row.headers, row.timestamp)
            for row in rows
        ]
        faults = {place: row.fault for place, row in enumerate(rows) if row.fault is not None}
        return self._of(turn).begin(copies, timeout_s, turn.check_lock, faults)

    def _of(self, turn: RelayTurn) -> BatchSender:
        found = self._lanes.get(turn.transactional_id)
        if found is None:
            found = self._lanes[turn.transactional_id] = BatchSender(
                self._properties,
                "outbox-relay",
                turn.transactional_id,
                self._log,
                self._oauth_token,
                timeout_s=_TIMEOUT_S,
                holds_keys=self._holds_keys,
            )
        return found
