"""Options of FastStream that a worker lacks: refused by name, with the alternative."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from faststream import AckPolicy

from window_consumer import UsageError

KNOWN: Final = "0.7."
"""The versions whose subscribers we can call, which is not public in FastStream."""


def refuse_broker(broker: Any) -> None:
    """Raise UsageError for a broker that already consumes."""
    if broker.running:
        raise UsageError(
            "worker_of: FastStream already runs this broker: two consumers would share its groups;"
            " run the subscribers in one of the two"
        )


def refuse_version(found: str) -> None:
    """Raise UsageError for an unknown version of FastStream."""
    if not found.startswith(KNOWN):
        raise UsageError(
            f"worker_of works with FastStream {KNOWN}x, but {found} is installed: pip install"
            " 'window-consumer[faststream]'"
        )


def refuse_subscriber(subscriber: Any) -> None:
    """Raise UsageError for each option of a subscriber that cannot be kept."""
    problems = list(_problems(subscriber))
    if problems:
        where = f"worker_of: @broker.subscriber of {subscriber.calls[0].name}"
        raise UsageError("\n".join(f"{where}: {problem}" for problem in problems))


def _problems(subscriber: Any) -> Iterator[str]:
    if subscriber.partitions:
        yield (
            "partitions= assigns partitions manually, but a worker gets its group's: name the"
            " topic instead, or read all partitions with `delivery: broadcast`"
        )
    if getattr(subscriber, "pattern", None):
        yield (
            "pattern= has FastStream's own syntax: name the topics, or register the function"
            " with @app.handler(patterns=[...])"
        )
    if getattr(subscriber, "_listener", None) is not None:
        yield "listener= is never called: a worker commits and releases partitions by itself"
    if subscriber.ack_policy is AckPolicy.MANUAL:
        yield (
            "AckPolicy.MANUAL leaves commits to the function: remove it; a record is finished when"
            " the function returns, and retried when it raises"
        )
