"""What is put back counts when it is there for certain, and is unknown otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from window_consumer.audit.count import CountTier, decode
from window_consumer.audit.process_audit import Audit, AuditSettings
from window_consumer.audit.sink import CountingWriter
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.protocols import Copy
from window_consumer.testing.clock import ManualClock

READER: Any = None


class Broker:
    """A writer whose answers are given."""

    def __init__(self) -> None:
        self.answer: dict[int, PublishFailedError] | PublishFailedError = {}
        self.sent: list[Copy] = []

    def send(self, copies: Sequence[Copy]) -> None:
        self.sent += copies

    def acks(self) -> dict[int, PublishFailedError]:
        if isinstance(self.answer, PublishFailedError):
            raise self.answer
        return self.answer

    def finish(self, reader: Any) -> None:
        pass

    def close(self) -> None:
        pass


def copies(count: int, topic: str = "now") -> list[Copy]:
    return [Copy(topic, 1, b"k", b"four", [("wc-id", b"%d" % n)]) for n in range(count)]


def reported(
    directory: Path, *, transactional: bool, until: str, **more: Any
) -> dict[CountTier, int]:
    """Put three dead letters back, up to some step; return what was counted."""
    broker = Broker()
    broker.answer = more.get("answer", {})
    audit = Audit(AuditSettings(directory=directory, app="shop"), clock=ManualClock())
    counter = audit.producer("redrive", "shop", tier=CountTier.REDRIVEN)
    writer = CountingWriter(broker, counter, "now", ManualClock(), transactional=transactional)
    writer.send([*copies(2), *copies(1, "state")])
    writer.send(copies(1))
    assert len(broker.sent) == 4
    if until != "send":
        try:
            writer.acks()
        except PublishFailedError:
            assert "answer" in more
    if until == "finish":
        writer.finish(READER)
    writer.close()
    audit.close()
    found: dict[CountTier, int] = {}
    for path in directory.rglob("*.log"):
        for line in path.read_bytes().splitlines():
            for count in decode(line):
                found[count.tier] = found.get(count.tier, 0) + count.count
    return {tier: count for tier, count in found.items() if count}


@pytest.mark.parametrize(
    ("transactional", "until", "expected"),
    [
        (False, "send", {CountTier.UNKNOWN: 3}),
        (False, "acks", {CountTier.REDRIVEN: 3}),
        (False, "finish", {CountTier.REDRIVEN: 3}),
        (True, "acks", {CountTier.UNKNOWN: 3}),
        (True, "finish", {CountTier.REDRIVEN: 3}),
    ],
)
def test_a_dead_letter_counts_when_it_is_there_for_certain(
    tmp_path: Path, until: str, expected: dict[CountTier, int], *, transactional: bool
) -> None:
    assert reported(tmp_path, transactional=transactional, until=until) == expected


def test_what_was_refused_is_not_there(tmp_path: Path) -> None:
    refused = {1: PublishFailedError("too large", refused=True)}
    counts = reported(tmp_path, transactional=False, until="finish", answer=refused)
    assert counts == {CountTier.REDRIVEN: 2}


def test_of_what_was_not_answered_nobody_knows(tmp_path: Path) -> None:
    counts = reported(
        tmp_path, transactional=False, until="acks", answer=PublishFailedError("late")
    )
    assert counts == {CountTier.UNKNOWN: 3}
