"""Runs users' interventions and describes the poll thread's answers."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from time import monotonic, sleep
from typing import Final

from window_consumer.engine.guards.breaker_state import BreakerAnswer
from window_consumer.engine.guards.interventions import (
    ConcurrencyAnswer,
    Intervention,
    InterventionResult,
)
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.worker import Worker

DEADLINE_S: Final = 5.0
"""How long to wait for a running call to return, or for a copy's ack."""

_AGAIN_S: Final = 0.1
_PASSING: Final = frozenset({InterventionResult.RUNNING, InterventionResult.IN_FLIGHT})

LONGEST_REASON: Final = 200
NO_REASON: Final = f"one line of {LONGEST_REASON} characters at most, without control characters"

DONE: Final = frozenset({InterventionResult.SKIPPED, InterventionResult.DEAD_LETTERED})

STATUS: Final[Mapping[InterventionResult, HTTPStatus]] = {
    InterventionResult.SKIPPED: HTTPStatus.OK,
    InterventionResult.DEAD_LETTERED: HTTPStatus.OK,
    InterventionResult.LEAVING: HTTPStatus.ACCEPTED,
    InterventionResult.NOT_ASSIGNED: HTTPStatus.NOT_FOUND,
    InterventionResult.NOT_IN_WINDOW: HTTPStatus.NOT_FOUND,
}
"""The HTTP status of each result; an unlisted one is a conflict."""

WORDS: Final[Mapping[InterventionResult, str]] = {
    InterventionResult.SKIPPED: "it is skipped",
    InterventionResult.DEAD_LETTERED: "it is among the dead letters",
    InterventionResult.LEAVING: "its copy has not been acked yet: it stays open until then, and the"
    " log has the reason if the broker refuses the copy",
    InterventionResult.NOT_ASSIGNED: "no worker of that name owns that partition here",
    InterventionResult.NOT_IN_WINDOW: "no record with that offset is in the window: it has not"
    " arrived yet, or the log has none there",
    InterventionResult.FINISHED: "it is already finished",
    InterventionResult.NOT_FAILED: "none of its calls has failed: only failed records that wait can"
    " be removed",
    InterventionResult.RUNNING: "its call is running and cannot be ended safely: its lane would"
    " continue beside it; try again when it has returned, or pause the partition first",
    InterventionResult.IN_FLIGHT: "it is about to be called, or its copy waits for an ack;"
    " try again",
    InterventionResult.NO_DEAD_LETTERS: "the worker has no dead-letter topic (retry.when_spent):"
    " skip it",
}


BREAKER_WORDS: Final[Mapping[BreakerAnswer, str]] = {
    BreakerAnswer.OBEYED: "done",
    BreakerAnswer.NOTHING_HELD: "its circuit breaker is closed: it holds nothing",
    BreakerAnswer.SWITCHED_OFF: "its circuit breaker is switched off (breaker.enabled)",
    BreakerAnswer.NO_SUCH_WORKER: "there is no such worker here",
}


CONCURRENCY_WORDS: Final[Mapping[ConcurrencyAnswer, str]] = {
    ConcurrencyAnswer.OBEYED: "done",
    ConcurrencyAnswer.TOO_MANY: "that exceeds the concurrency at its start: raise concurrency in"
    " its configuration and restart it",
    ConcurrencyAnswer.LEASES: "its calls are leases (pull), and clients decide how many they"
    " request: see pull.max_in_flight",
    ConcurrencyAnswer.NO_SUCH_WORKER: "there is no such worker here",
}


def is_reason(text: str) -> bool:
    """Return whether a text is acceptable as a user's reason; see ``NO_REASON``."""
    return len(text) <= LONGEST_REASON and text.isprintable()


def intervene(
    worker: Worker, name: TopicPartition, offset: int, wanted: Intervention
) -> InterventionResult | None:
    """Skip a record or dead-letter it; return None if the poll thread is silent.

    Waits for temporary obstacles to pass, and for the copy's ack. Blocks for some seconds.
    """
    until = monotonic() + DEADLINE_S
    verdict = worker.interventions.intervene(name, offset, wanted)
    while verdict in _PASSING and monotonic() < until:
        sleep(_AGAIN_S)
        verdict = worker.interventions.intervene(name, offset, wanted)
    while verdict is InterventionResult.LEAVING and monotonic() < until:
        sleep(_AGAIN_S)
        if worker.inspect.is_finished(name, offset, 1.0):
            verdict = InterventionResult.DEAD_LETTERED
    return verdict
