"""Rules that watch a worker and may pause it until a person decides.

A rule observes what happens to records. The page, ``top`` and ``doctor`` show its findings from the
snapshot. Resuming the worker accepts them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attrs import frozen

from window_consumer.engine.observer import Observer


@frozen
class RuleFinding:
    """A rule's finding, for a person to decide about."""

    kind: str
    """The name of the cause in ``doctor``."""
    text: str
    """What it is and what to do, in one sentence without a full stop."""
    pauses: bool = False
    """Whether the worker is paused because of it."""
    figures: Mapping[str, Any] = MappingProxyType({})
    """The figures behind the text, as JSON has them; seconds end in ``_s``."""
    holds_all: bool = False
    """Whether no call starts because of it, so that it explains whatever else stands still."""
    ends_itself: bool = False
    """Whether it goes away with its cause, so that there is nothing to accept."""


class PauseRule(Observer):
    """Watches one worker. Owner: poll thread.

    It receives a report before the observers do. It decides, so its exceptions stop the worker.
    """

    @abstractmethod
    def pauses(self, now: float) -> bool:
        """Return whether the worker must be paused until ``accept``.

        Called in each tick, before anything starts or leaves, so it must be cheap.
        """

    @abstractmethod
    def findings(self) -> Sequence[RuleFinding]:
        """Return the findings that nobody has accepted."""

    @abstractmethod
    def accept(self) -> None:
        """Accept all findings: a user has resumed the worker."""
