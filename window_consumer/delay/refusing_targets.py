"""Targets that refuse records, for ``doctor``, ``top`` and the page: missing topics, above all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from attrs import define, field

from window_consumer.engine.guards.pause_rule import PauseRule, RuleFinding
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model import headers as names
from window_consumer.model.errors import ResultRefusedError
from window_consumer.model.header_values import text
from window_consumer.model.outcome import Outcome
from window_consumer.model.record import Message

KIND: Final = "target_refuses"
"""The name of the cause in ``doctor``; it is stable."""

_SHOWN: Final = 5
"""Findings at once, those with the most waiting records: any number of targets may be missing."""


class _Place(NamedTuple):
    topic: str
    partition: int
    offset: int


@define
class _Refusing:
    """A target that has refused the records that wait for it."""

    since: float
    why: str
    waiting: set[_Place] = field(factory=set)


class RefusingTargets(PauseRule):
    """Knows which targets refuse records; it pauses nothing. Owner: poll thread.

    Memory: two entries for each record that waits for another try, which the window bounds.
    """

    def __init__(self) -> None:
        self._refusing: dict[str, _Refusing] = {}
        self._target_of: dict[_Place, str] = {}
        self._now = 0.0

    def failed(self, failed: FailedRecord, now: float) -> None:
        """See Observer."""
        error = failed.failure.error
        if not isinstance(error, ResultRefusedError):
            return
        target = text(dict(failed.message.headers() or ()).get(names.DELIVER_TO))
        if target is None:
            return
        refusing = self._refusing.setdefault(target, _Refusing(now, str(error)))
        refusing.why = str(error)
        place = _place_of(failed.message)
        refusing.waiting.add(place)
        self._target_of[place] = target

    def finished(
        self,
        partition: Partition,  # noqa: ARG002 - see Observer
        messages: Sequence[Message],
        outcome: Outcome,  # noqa: ARG002 - see Observer
        slice_: Slice | None,  # noqa: ARG002 - see Observer
        now: float,  # noqa: ARG002 - see Observer
    ) -> None:
        """See Observer."""
        if self._target_of:
            self._remove(map(_place_of, messages))

    def left(self, failed: FailedRecord, outcome: Outcome, now: float) -> None:  # noqa: ARG002 - see Observer
        """See Observer."""
        if self._target_of:
            self._remove([_place_of(failed.message)])

    def given_up(self, partition: Partition, now: float) -> None:  # noqa: ARG002 - see Observer
        """See Observer."""
        self._remove([each for each in self._target_of if each[:2] == partition.name])

    def _remove(self, places: Iterable[_Place]) -> None:
        for place in places:
            target = self._target_of.pop(place, None)
            if target is not None:
                waiting = self._refusing[target].waiting
                waiting.discard(place)
                if not waiting:
                    del self._refusing[target]

    def pauses(self, now: float) -> bool:
        """Return False: records for other targets are delivered."""
        self._now = now
        return False

    def findings(self) -> Sequence[RuleFinding]:
        """Return a finding for each target that refuses records, those with the most first."""
        found = sorted(self._refusing.items(), key=lambda item: (-len(item[1].waiting), item[0]))
        return [self._finding(target, each) for target, each in found[:_SHOWN]]

    def _finding(self, target: str, refusing: _Refusing) -> RuleFinding:
        count = len(refusing.waiting)
        waits = "1 record waits" if count == 1 else f"{count} records wait"
        return RuleFinding(
            KIND,
            f"{waits} for {target}, which refuses records ({refusing.why}): create the topic, or"
            " permit writing to it; they are tried again until it takes them",
            ends_itself=True,
            figures={
                "target": target,
                "waiting": count,
                "since_s": max(0.0, self._now - refusing.since),
            },
        )

    def accept(self) -> None:
        """Keep what is known: it ends once the records are delivered."""


def _place_of(message: Message) -> _Place:
    return _Place(message.topic(), message.partition(), message.offset())
