"""The outcomes of records."""

from __future__ import annotations

from enum import IntEnum


class Outcome(IntEnum):
    """The state of one delivered record in its cell; everything but ``OPEN`` is final.

    The values are bytes of a cell's state array. ``OPEN`` must be 0: a search for a zero byte then
    finds a run of open records.
    """

    OPEN = 0
    DONE = 1
    SKIPPED = 2
    """Its handler raised Skip, or a user skipped it."""
    DEAD_LETTERED = 3
    DROPPED = 4
    EARLIER = 5
    """Finished before this assignment began, according to the commit's metadata."""
    MOVED = 6
    """Its copy is in a retry topic."""
    EXPIRED = 7
    """It was older than its time to live: dead-lettered or dropped."""
    FILTERED = 8
    """It matches none of the handlers, and needs no action."""
    DEDUPLICATED = 9
    """The database already holds its effect: no handler was called."""
