"""Log lines about people's actions at the admin address; replicas leave them to their parent."""

from __future__ import annotations

from typing import Final

from window_consumer.admin.answers import Asker
from window_consumer.admin.board import BoardAddress, CellPlace
from window_consumer.admin.interventions import BREAKER_WORDS, CONCURRENCY_WORDS, WORDS
from window_consumer.engine.guards.breaker_state import BreakerAnswer
from window_consumer.engine.guards.interventions import (
    ConcurrencyAnswer,
    ConcurrencyRequest,
    Intervention,
    InterventionResult,
)
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import own_logger

NO_ANSWER: Final = "the poll thread did not answer in time; check the state and try again"

_log = own_logger()


def cell_fields(event: LogEvent, asker: Asker, at: CellPlace) -> dict[str, object]:
    """Return the fields of a log line about a record."""
    return {
        "event": event,
        "worker": at.worker,
        "topic": at.partition.topic,
        "partition": at.partition.partition,
        "offset": at.offset,
        **asker.fields,
    }


def log_halt(asker: Asker, at: BoardAddress, what: str, reason: str, *, done: bool | None) -> None:
    """Log a request, like ``log_intervention``."""
    if asker.text:
        _log.warning(
            "%s: %s asked to %s %s: %s",
            at.worker,
            asker.text,
            what,
            "the worker" if at.partition is None else at.partition,
            NO_ANSWER if done is None else "done" if done else "not here",
            extra={"event": LogEvent.ADMIN_PAUSE_REQUESTED, **asker.fields, "reason": reason},
        )


def log_concurrency(
    asker: Asker, at: BoardAddress, asked: ConcurrencyRequest, result: ConcurrencyAnswer | None
) -> None:
    """Log a request, like ``log_intervention``."""
    if asker.text:
        _log.warning(
            "%s: %s asked for concurrency %s: %s",
            at.worker,
            asker.text,
            asked.limit or "auto",
            NO_ANSWER if result is None else CONCURRENCY_WORDS[result],
            extra={
                "event": LogEvent.ADMIN_CONCURRENCY_REQUESTED,
                "worker": at.worker,
                **asker.fields,
                "reason": asked.reason,
                "limit": asked.limit,
                "result": result,
            },
        )


def log_decision(asker: Asker, at: BoardAddress, what: str, result: BreakerAnswer | None) -> None:
    """Log a decision, like ``log_intervention``."""
    if asker.text:
        _log.warning(
            "%s: %s asked to %s what its circuit breaker holds: %s",
            at.worker,
            asker.text,
            what,
            NO_ANSWER if result is None else BREAKER_WORDS[result],
            extra={
                "event": LogEvent.ADMIN_BREAKER_DECIDED,
                "worker": at.worker,
                **asker.fields,
                "wanted": what,
                "result": result,
            },
        )


def log_intervention(
    asker: Asker, at: CellPlace, wanted: Intervention, verdict: InterventionResult | None
) -> None:
    """Log a request and its sender; with several replicas their parent does it."""
    if asker.text:
        _log.warning(
            "%s: %s asked to %s %s@%d: %s",
            at.worker,
            asker.text,
            wanted,
            at.partition,
            at.offset,
            NO_ANSWER if verdict is None else WORDS[verdict],
            extra={
                **cell_fields(LogEvent.ADMIN_RECORD_ENDED, asker, at),
                "wanted": wanted,
                "result": verdict,
            },
        )
