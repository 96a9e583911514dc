"""Whether this member still owns one assignment of one partition."""

from __future__ import annotations

from itertools import count
from typing import Self


class MembershipProof:
    """Slots ask the poll thread whether the coordinator still accepts commits of this member.

    A member may not know that the group has removed it. Its calls ask, the poll thread sends a
    commit, possibly a repeated one, and only an accepted commit is an answer. Each assignment has
    its own object.
    """

    __slots__ = ("_asked", "_numbers", "_proven", "_sent", "is_over")

    def __init__(self) -> None:
        self._numbers = count(1)
        self._asked = 0
        self._sent = 0
        self._proven = 0
        self.is_over = False
        """The partition was given up."""

    # ---- for any slot

    def ask(self) -> int:
        """Ask for a proof of ownership after this moment; return the question's number."""
        self._asked = number = next(self._numbers)
        return number

    def has_proven(self, number: int) -> bool:
        """Return whether the coordinator has accepted a commit made after a question."""
        # If two slots ask at once, the older number may be written last.
        self._asked = max(self._asked, number)
        return self._proven >= number

    # ---- for the poll thread

    @property
    def is_asked(self) -> bool:
        """Whether a commit is needed although nothing has changed."""
        return self._asked > self._proven

    def sending(self) -> None:
        """Record that a commit is being sent."""
        self._sent = self._asked

    def accepted(self) -> None:
        """Record that the coordinator has accepted that commit."""
        self._proven = self._sent

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        """Omit questions and answers: nobody answers in a child process."""
        return type(self), ()
