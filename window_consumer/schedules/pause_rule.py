"""The finding of ``doctor``, ``top`` and the page about unsent ticks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from window_consumer.engine.guards.pause_rule import PauseRule, RuleFinding
from window_consumer.schedules.sender import UnsentTicks

KIND: Final = "tick_refused"
"""The name of the cause in ``doctor``; it is stable."""

_SHOWN: Final = 5


class UnsentTicksRule(PauseRule):
    """Reports schedules that cannot send, and pauses nothing. Owner: poll thread."""

    def __init__(self, unsent: Callable[[], Sequence[UnsentTicks]]):
        self._unsent = unsent

    def pauses(self, now: float) -> bool:  # noqa: ARG002 - see PauseRule
        """Return False: delayed records do not depend on schedules."""
        return False

    def findings(self) -> Sequence[RuleFinding]:
        """Return a finding for each schedule that cannot send, at most five."""
        return [_finding(each) for each in self._unsent()[:_SHOWN]]

    def accept(self) -> None:
        """Do nothing: the finding ends once the topic accepts the tick."""


def _finding(unsent: UnsentTicks) -> RuleFinding:
    text = (
        f"the schedule {unsent.schedule} cannot send its due tick, because {unsent.topic} refuses"
        f" it ({unsent.why}): create the topic, or permit writing to it; the tick is retried"
    )
    figures = {"schedule": unsent.schedule, "topic": unsent.topic}
    return RuleFinding(KIND, text, ends_itself=True, figures=figures)
