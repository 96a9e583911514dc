"""Notices a member that no longer hears what its group deals out.

In the consumer protocol (KIP-848) the coordinator sends an assignment once, in its answer to a
heartbeat, and again only to a member that asks for everything anew. librdkafka (2.16) gives a
heartbeat up that has no answer within twice its interval, and does not ask anew: what stood in
that answer never reaches the member. Nobody reads the partitions that it was dealt, and whoever
should get those that it was to give up waits for them, up to max.poll.interval.ms.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, Protocol

from window_consumer.model.record import TopicPartition

CHECK_S = 1.0
"""How often there may be something to do."""

ASK_S = 5.0
"""Between two questions while there is reason to ask."""

ALERT_S = 60.0
"""How long a line of the client's log is a reason: a lost answer leaves one there. A coordinator
that describes its group says a lot where the group is large, so it is not asked without one."""

CALM_S = 300.0
"""... but this often all the same."""

SURE_S = 10.0
"""For so long the same partitions have to be amiss: what is on its way arrives within seconds."""

GENTLE_S = 30.0
"""Between two cures, longer each time that the last was none."""

_LONGEST_S = 900.0


class GroupRequest(Protocol):
    """The group's description, asked for."""

    def done(self) -> bool:
        """Tell whether there is an answer, or none will come."""

    def answer(self) -> Any:
        """Return it, None where there was none: no rights, no coordinator.

        Whoever polls hears of trouble that lasts.
        """


class AssignmentWatchdog:
    """Compares what a member holds with what its coordinator says that it holds.

    Owner: poll thread. It never waits: answers are looked at when they are there.
    """

    def __init__(
        self,
        ask: Callable[[], GroupRequest],
        coordinator_answers: Callable[[], bool],
        lines: Callable[[], int],
        now: Callable[[], float] = time.monotonic,
    ):
        """Take how to have the group described, and how many lines the client has logged.

        ``coordinator_answers`` is asked before: who is in trouble is not to be bothered.
        """
        self._ask = ask
        self._coordinator_answers = coordinator_answers
        self._lines = lines
        self._now = now
        self._look_at = 0.0
        self._ask_at = now() + CALM_S
        self._lines_seen = 0
        self._alert_until = float("-inf")
        self._asked: GroupRequest | None = None
        self._amiss: frozenset[TopicPartition] = frozenset()
        """Dealt, and the member has not heard of it; or not to be kept, and it has not heard."""
        self._amiss_since = 0.0
        self._cure_at = 0.0
        self._cure_pause_s = GENTLE_S
        self.unheard = False
        """Whether the member has joined and not heard of its share, see ``expect_share``."""
        self.gets_nothing = False
        """The coordinator knows the member and has nothing for it."""
        self._share_pause_s = ASK_S

    def expect_share(self) -> None:
        """Find out whether the member, which joins, gets nothing: the client would not say so."""
        self.unheard, self.gets_nothing = True, False
        self._share_pause_s = ASK_S
        self._ask_at = min(self._ask_at, self._now() + ASK_S)

    def is_deaf(
        self, member_id: Callable[[], str], held: Callable[[], Collection[TopicPartition]]
    ) -> bool:
        """Tell whether the member has to join anew; cheap enough to be asked in every poll."""
        now = self._now()
        if now < self._look_at:
            return False
        self._look_at = now + CHECK_S
        if self._asked is not None:
            if self._asked.done():
                answer, self._asked = self._asked.answer(), None
                says = None if answer is None else _description_of(member_id(), answer)
                self._compare(says, frozenset(held()), now)
        elif self._should_ask(now):
            self._ask_at = now + (self._share_pause_s if self.unheard else CALM_S)
            # Less and less often: the group may be large, or we have no right to look at it.
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
            self._ask_at = min(self._ask_at, now + ASK_S)
        return now >= self._ask_at

    def _compare(self, says: _Says | None, held: frozenset[TopicPartition], now: float) -> None:
        self.gets_nothing = says is not None and not (says.dealt or says.target)
        # Whoever waits for what another member gives up lacks nothing of what it was dealt.
        amiss = frozenset() if says is None else (says.dealt - held) | (held - says.target)
        if amiss != self._amiss:
            self._amiss = amiss
            self._amiss_since = now
        if says is not None and not amiss:
            self._cure_pause_s = GENTLE_S

    def _is_sure(self, now: float) -> bool:
        if not self._amiss or now < max(self._amiss_since + SURE_S, self._cure_at):
            return False
        self._amiss = frozenset()
        self._cure_at = now + self._cure_pause_s
        self._cure_pause_s = min(2 * self._cure_pause_s, _LONGEST_S)
        return True


class _Says(NamedTuple):
    """What a coordinator says of a member."""

    dealt: frozenset[TopicPartition]
    """What it has been told to hold, and what it has to give up and has not."""
    target: frozenset[TopicPartition]
    """What it shall hold when everybody has given up what they have to."""


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
