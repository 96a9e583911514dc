"""Targets that refuse records: which they are, since when, and how many records wait for them.

``doctor``, ``top`` and the page show it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from attrs import define, field

from window_consumer.engine.guards.pause_rule import RuleFinding
from window_consumer.model.copy_headers import Hop
from window_consumer.model.record import TopicPartition

KIND: Final = "target_refuses"
"""The name of the cause in ``doctor``; it is stable."""

MOST_COUNTED: Final = 10_000
"""The most waiting records that are counted, over all targets; any number may wait in the
levels."""

_SHOWN: Final = 5
"""The most findings at once, for the targets with the most waiting records."""

_ASKED_AGAIN_S: Final = 5.0
"""How long after its last refusal a topic is tried again. Until then its records wait without a
try, so that they do not fill the window."""

MOST_TRIED: Final = 1000
"""How many records are tried at once for topics that may accept none, plus one for each topic: the
client searches half a minute for a missing one, and the worker has at most 10,000 results in
flight."""

_REMEMBERED: Final = 10_000
"""How many topics known to accept records are kept."""

_Place = tuple[TopicPartition, int]
"""Where a record was delivered first: its partition and offset."""


@define
class _Refusing:
    """A target that has refused a record."""

    since: float
    why: str
    of_topic_at: float | None = None
    """When it last refused a record for a reason that concerns all records."""
    waiting: set[_Place] = field(factory=set)


class RefusingTargets:
    """Tracks which targets refuse records. Owner: poll thread."""

    def __init__(self, on_refused: Callable[[str, str], None], on_taken: Callable[[str], None]):
        """``on_refused`` receives a target that begins to refuse records, and the reason."""
        self._on_refused = on_refused
        self._on_taken = on_taken
        self._refusing: dict[str, _Refusing] = {}
        self._counted = 0
        self._taking: set[str] = set()
        """Topics that have accepted a record and refused none since."""
        self._tried: defaultdict[str, set[_Place]] = defaultdict(set)
        """Records that may be on their way to other topics."""
        self._tries = 0

    def __bool__(self) -> bool:
        return bool(self._refusing or self._tries)

    def may_try(self, target: str, hop: Hop, now: float) -> bool:
        """Return whether a due record may be sent to its target; a true answer stays true."""
        if target in self._taking:
            return True
        refusing, place = self._refusing.get(target), (hop.origin, hop.offset)
        tried = self._tried[target]
        if place in tried:
            return True
        if refusing is not None and refusing.of_topic_at is not None:
            if now < refusing.of_topic_at + _ASKED_AGAIN_S or tried:
                return False
        elif self._tries >= MOST_TRIED and tried:
            return False
        tried.add(place)
        self._tries += 1
        return True

    def why_not(self, target: str) -> str | None:
        """Return why a target has refused all records; None if it has not."""
        refusing = self._refusing.get(target)
        return None if refusing is None or refusing.of_topic_at is None else refusing.why

    def refused(self, target: str, why: str, hop: Hop, now: float, *, of_topic: bool) -> None:
        """Record a refusal; with ``of_topic`` it concerns all records for the target."""
        refusing = self._refusing.get(target)
        if refusing is None:
            refusing = self._refusing[target] = _Refusing(now, why)
            self._on_refused(target, why)
        refusing.why = why
        self._answered(target, [(hop.origin, hop.offset)])
        if of_topic:
            refusing.of_topic_at = now
            self._taking.discard(target)
        self.add(target, hop)

    def add(self, target: str, hop: Hop) -> None:
        """Count a record that waits for a target that refuses records."""
        waiting, place = self._refusing[target].waiting, (hop.origin, hop.offset)
        if self._counted < MOST_COUNTED and place not in waiting:
            waiting.add(place)
            self._counted += 1

    def over(self, target: str, hop: Hop, *, taken: bool) -> None:
        """Forget a record that no longer waits: ``taken`` by the target, or a dead letter.

        Once a target that refused all records accepts one, those in levels no longer count.
        """
        self._answered(target, [(hop.origin, hop.offset)])
        if taken:
            if len(self._taking) >= _REMEMBERED:
                self._taking.clear()
            self._taking.add(target)
        refusing = self._refusing.get(target)
        if refusing is None:
            return
        is_over = taken and refusing.of_topic_at is not None
        self._remove(target, refusing.waiting if is_over else [(hop.origin, hop.offset)])
        if taken and target not in self._refusing:
            self._on_taken(target)

    def given_up(self, partition: int) -> None:
        """Forget the records of all partitions with a number: another member has them."""
        for target, tried in list(self._tried.items()):
            self._answered(target, [each for each in tried if each[0].partition == partition])
        for target, refusing in list(self._refusing.items()):
            self._remove(target, [e for e in refusing.waiting if e[0].partition == partition])

    def clear(self) -> None:
        """Forget everything: nothing is assigned."""
        self._refusing.clear()
        self._tried.clear()
        self._tries = self._counted = 0

    def _answered(self, target: str, places: Iterable[_Place]) -> None:
        tried = self._tried[target]
        before = len(tried)
        tried.difference_update(places)
        self._tries -= before - len(tried)
        if not tried:
            del self._tried[target]

    def _remove(self, target: str, places: Iterable[_Place]) -> None:
        refusing = self._refusing[target]
        before = len(refusing.waiting)
        refusing.waiting.difference_update(list(places))
        self._counted -= before - len(refusing.waiting)
        if not refusing.waiting:
            del self._refusing[target]

    def findings(self, now: float) -> Sequence[RuleFinding]:
        """Return a finding for each target that refuses records, most waiting records first."""
        found = sorted(self._refusing.items(), key=lambda item: (-len(item[1].waiting), item[0]))
        return [self._finding(target, each, now) for target, each in found[:_SHOWN]]

    def _finding(self, target: str, refusing: _Refusing, now: float) -> RuleFinding:
        count = len(refusing.waiting)
        waits = "1 record waits" if count == 1 else f"{count} records wait"
        if self._counted >= MOST_COUNTED:
            waits = f"at least {waits}"
        return RuleFinding(
            KIND,
            f"{waits} for {target}, which refuses records ({refusing.why}): create the topic, or"
            " permit writing to it; they are tried again until delay.max has passed",
            ends_itself=True,
            figures={"target": target, "waiting": count, "since_s": max(0.0, now - refusing.since)},
        )
