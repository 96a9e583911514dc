"""Log lines about what people do at the admin address; of replicas their parent writes them."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from window_consumer.admin.answers import principal_fields, who_asks
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


def cell_fields(event: LogEvent, request: Request, at: CellPlace) -> dict[str, object]:
    """Return the fields of a log line about a record."""
    return {
        "event": event,
        "worker": at.worker,
        "topic": at.partition.topic,
        "partition": at.partition.partition,
        "offset": at.offset,
        **principal_fields(request),
    }


def log_halt(
    request: Request, at: BoardAddress, what: str, reason: str, *, done: bool | None
) -> None:
    """Log who requested what, like ``log_intervention``."""
    if who_asks(request):
        _log.warning(
            "%s: %s asked to %s %s: %s",
            at.worker,
            who_asks(request),
            what,
            "the worker" if at.partition is None else at.partition,
            NO_ANSWER if done is None else "done" if done else "not here",
            extra={
                "event": LogEvent.ADMIN_PAUSE_REQUESTED,
                **principal_fields(request),
                "reason": reason,
            },
        )


def log_concurrency(
    request: Request, at: BoardAddress, asked: ConcurrencyRequest, result: ConcurrencyAnswer | None
) -> None:
    """Log who requested what, like ``log_intervention``."""
    if who_asks(request):
        _log.warning(
            "%s: %s asked for concurrency %s: %s",
            at.worker,
            who_asks(request),
            asked.limit or "auto",
            NO_ANSWER if result is None else CONCURRENCY_WORDS[result],
            extra={
                "event": LogEvent.ADMIN_CONCURRENCY_REQUESTED,
                "worker": at.worker,
                **principal_fields(request),
                "reason": asked.reason,
                "limit": asked.limit,
                "result": result,
            },
        )


def log_decision(
    request: Request, at: BoardAddress, what: str, result: BreakerAnswer | None
) -> None:
    """Log who decided what, like ``log_intervention``."""
    if who_asks(request):
        _log.warning(
            "%s: %s asked to %s what its circuit breaker holds: %s",
            at.worker,
            who_asks(request),
            what,
            NO_ANSWER if result is None else BREAKER_WORDS[result],
            extra={
                "event": LogEvent.ADMIN_BREAKER_DECIDED,
                "worker": at.worker,
                **principal_fields(request),
                "wanted": what,
                "result": result,
            },
        )


def log_intervention(
    request: Request, at: CellPlace, wanted: Intervention, verdict: InterventionResult | None
) -> None:
    """Log who requested what; with several replicas their parent does it."""
    if who_asks(request):
        _log.warning(
            "%s: %s asked to %s %s@%d: %s",
            at.worker,
            who_asks(request),
            wanted,
            at.partition,
            at.offset,
            NO_ANSWER if verdict is None else WORDS[verdict],
            extra={
                **cell_fields(LogEvent.ADMIN_RECORD_ENDED, request, at),
                "wanted": wanted,
                "result": verdict,
            },
        )
