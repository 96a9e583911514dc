"""The permissions that a worker, and the operators of its dead letters, need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import evolve

from window_consumer.config import WorkerConfig
from window_consumer.engine.commits.delivery_guarantee import DeliveryMode
from window_consumer.plan.feature import AclRule
from window_consumer.plan.topics.event_topics import EventTopic


def rights_of(
    worker: WorkerConfig, sources: Sequence[str], *, create: bool, dead_letters: bool
) -> Iterator[AclRule]:
    """Yield the rights of one worker, then the additional ones of ``replay`` and ``dlq``.

    ``create`` is ``topics.create``; ``dead_letters`` is whether the worker writes any.
    """
    # Without the source's settings, the topics for copies would be created with defaults.
    reads = ("READ", "DESCRIBE", *(("DESCRIBE_CONFIGS",) if create else ()))
    copies = ("READ", "WRITE", "DESCRIBE", *(("CREATE", "ALTER") if create else ()))
    prefix = f"{worker.group}."
    for source in sources:
        yield AclRule("topic", source, reads, f"{worker.name} reads it")
    if worker.is_broadcast:
        return
    yield AclRule("group", worker.group, ("READ",), f"the group of {worker.name}")
    yield AclRule(
        "topic", prefix, copies, f"copies of the records of {worker.name}", is_prefix=True
    )
    if worker.delivery is DeliveryMode.EXACTLY_ONCE:
        transactions, why = ("WRITE", "DESCRIBE"), f"the transactions of {worker.name}"
        own = f"{worker.group}-{worker.name}-"
        yield AclRule("transactional-id", own, transactions, why, is_prefix=True)
    yield AclRule("group", f"{prefix}replay.", ("READ",), "replay: its progress", is_prefix=True)
    if dead_letters:
        progress = f"{prefix}redrive."
        limits = ("DESCRIBE_CONFIGS",)
        yield AclRule("topic", prefix, limits, "dlq redrive: how large a batch may be", True)
        yield AclRule("group", progress, ("READ",), "dlq redrive: its progress", is_prefix=True)
        transactions = ("WRITE", "DESCRIBE")
        why = "dlq redrive --transactional"
        yield AclRule("transactional-id", progress, transactions, why, is_prefix=True)


def rights_of_events(topics: Iterable[EventTopic], *, create: bool) -> Iterator[AclRule]:
    """Yield the rights to write events; ``create`` is ``topics.create``."""
    operations = ("WRITE", "DESCRIBE", *(("CREATE",) if create else ()))
    for topic in topics:
        yield AclRule("topic", topic.name, operations, topic.purpose)


def merged(rights: Iterable[AclRule]) -> list[AclRule]:
    """Join rules that differ only in their purpose: workers of one group share some."""
    found: dict[AclRule, list[str]] = {}
    for right in rights:
        reasons = found.setdefault(evolve(right, why=""), [])
        if right.why not in reasons:
            reasons.append(right.why)
    return [evolve(right, why="; ".join(reasons)) for right, reasons in found.items()]
