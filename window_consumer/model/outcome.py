"""What became of a record."""

from __future__ import annotations

from enum import IntEnum


class Outcome(IntEnum):
    """The state of one delivered record in its cell; everything but ``OPEN`` is final.

    The values are bytes of a cell's state array, ``OPEN`` has to be 0: a run of open records is
    then found by searching for a zero byte.
    """

    OPEN = 0
    DONE = 1
    SKIPPED = 2
    """Its handler raised Skip, or a person skipped it."""
    DEAD_LETTERED = 3
    DROPPED = 4
    EARLIER = 5
    """Finished before this assignment began: the commit's metadata said so."""
    MOVED = 6
    """Its copy lies in a retry topic."""
    EXPIRED = 7
    """It was older than its time to live: among the dead letters, or dropped."""
    FILTERED = 8
    """It is for none of the handlers, and nothing is done with such."""
