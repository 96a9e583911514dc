"""Detects a member that no longer learns its assignment.

In the consumer protocol (KIP-848) the coordinator sends an assignment once, in its answer to a
heartbeat, and again only to a member that requests everything again. librdkafka (2.16) gives up a
heartbeat that is not answered within twice its interval and does not request again, so the member
never gets that assignment. Nobody reads its new partitions, and other members wait for the
partitions that it should give up, for up to max.poll.interval.ms.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple, Protocol

from attrs import frozen

from window_consumer.model.record import TopicPartition

CHECK_S = 1.0
"""How often to check whether something is due."""

ASK_S = 5.0
"""Pause between two requests while there is a reason to ask."""

ALERT_S = 60.0
"""How long a line of the client's log is a reason to ask: a lost answer leaves such a line.

The description of a large group is large, so the coordinator is asked only with a reason.
"""

CALM_S = 300.0
"""How often to ask without a reason."""

SURE_S = 10.0
"""How long the same partitions must be wrong; a pending assignment arrives within seconds."""

GENTLE_S = 30.0
"""Pause between two rejoins; it grows with each useless one."""

_LONGEST_S = 900.0


@frozen
class AssignmentTimes:
    """When the coordinator is asked, and when a member rejoins, in seconds."""

    check_s: float = CHECK_S
    ask_s: float = ASK_S
    sure_s: float = SURE_S
    gentle_s: float = GENTLE_S


DEFAULT_TIMES: Final = AssignmentTimes()


class GroupRequest(Protocol):
    """A pending request for the group's description."""

    def done(self) -> bool:
        """Return whether there is an answer, or none will come."""

    def answer(self) -> Any:
        """Return the answer, or None if there was none: no permission, no coordinator.

        The poll thread gets lasting problems from the client anyway.
        """


class AssignmentWatchdog:
    """Compares a member's partitions with its coordinator's assignment.

    Owner: poll thread. It never waits; answers are read once they have arrived.
    """

    def __init__(
        self,
        ask: Callable[[], GroupRequest],
        coordinator_answers: Callable[[], bool],
        lines: Callable[[], int],
        now: Callable[[], float] = time.monotonic,
        *,
        times: AssignmentTimes = DEFAULT_TIMES,
    ):
        """Take functions that request the group's description and count the client's log lines.

        ``coordinator_answers`` is called first, to spare a coordinator in trouble.
        """
        self._ask = ask
        self._coordinator_answers = coordinator_answers
        self._lines = lines
        self._now = now
        self._times = times
        self._look_at = 0.0
        self._ask_at = now() + CALM_S
        self._lines_seen = 0
        self._alert_until = float("-inf")
        self._asked: GroupRequest | None = None
        self._amiss: frozenset[TopicPartition] = frozenset()
        """Partitions assigned or revoked without the member's knowledge."""
        self._amiss_since = 0.0
        self._cure_at = 0.0
        self._cure_pause_s = self._times.gentle_s
        self.awaits_share = False
        """Whether the member has joined but got no assignment yet, see ``expect_share``."""
        self.gets_nothing = False
        """Whether the coordinator knows the member but has no partition for it."""
        self._share_pause_s = self._times.ask_s

    def expect_share(self) -> None:
        """Detect that a joining member gets nothing, which the client would not report."""
        self.awaits_share, self.gets_nothing = True, False
        self._share_pause_s = self._times.ask_s
        self._ask_at = min(self._ask_at, self._now() + self._times.ask_s)

    def is_deaf(
        self, member_id: Callable[[], str], held: Callable[[], Collection[TopicPartition]]
    ) -> bool:
        """Return whether the member must rejoin; cheap enough to call in every poll."""
        now = self._now()
        if now < self._look_at:
            return False
        self._look_at = now + self._times.check_s
        if self._asked is not None:
            if self._asked.done():
                answer, self._asked = self._asked.answer(), None
                says = None if answer is None else _description_of(member_id(), answer)
                self._compare(says, frozenset(held()), now)
        elif self._should_ask(now):
            self._ask_at = now + (self._share_pause_s if self.awaits_share else CALM_S)
            # Ask less and less often: the group may be large, or we may not be permitted to
            # describe it.
            self._share_pause_s = min(2 * self._share_pause_s, CALM_S)
            if self._coordinator_answers():
                self._asked = self._ask()
        return self._is_sure(now)

    def _should_ask(self, now: float) -> bool:
        lines = self._lines()
        if lines != self._lines_seen:
            self._lines_seen = lines
            self._alert_until = now + ALERT_S
        if self._amiss or now < self._alert_until:
            self._ask_at = min(self._ask_at, now + self._times.ask_s)
        return now >= self._ask_at

    def _compare(self, says: _Says | None, held: frozenset[TopicPartition], now: float) -> None:
        self.gets_nothing = says is not None and not (says.dealt or says.target)
        # A member that waits for another's partitions has its whole assignment.
        amiss = frozenset() if says is None else (says.dealt - held) | (held - says.target)
        if amiss != self._amiss:
            self._amiss = amiss
            self._amiss_since = now
        if says is not None and not amiss:
            self._cure_pause_s = self._times.gentle_s

    def _is_sure(self, now: float) -> bool:
        if not self._amiss or now < max(self._amiss_since + self._times.sure_s, self._cure_at):
            return False
        self._amiss = frozenset()
        self._cure_at = now + self._cure_pause_s
        self._cure_pause_s = min(2 * self._cure_pause_s, _LONGEST_S)
        return True


class _Says(NamedTuple):
    """A member as its coordinator sees it."""

    dealt: frozenset[TopicPartition]
    """Its assigned partitions, and those that it must still give up."""
    target: frozenset[TopicPartition]
    """Its partitions once all members have given up theirs."""


def _description_of(member_id: str, group: Any) -> _Says | None:
    for member in group.members:
        if member.member_id == member_id and member.assignment is not None:
            dealt = _names(member.assignment)
            target = member.target_assignment
            return _Says(dealt, dealt if target is None else _names(target))
    return None


def _names(assignment: Any) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(each.topic, each.partition) for each in assignment.topic_partitions
    )
