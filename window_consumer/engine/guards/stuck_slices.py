"""Slices whose unstarted records wait behind a slow one, and should go to other slots."""

from __future__ import annotations

from window_consumer.engine.scheduling.slice_length import SLICE_TARGET_S
from window_consumer.engine.scheduling.slices import Slice

STUCK_S = 0.015
"""A slice whose current record has made no progress for this long, and for twice the usual call,
gives its unstarted records back."""

LOOK_EVERY_S = 10e-6
"""How long after an inspection the next one follows, per inspected slice. Inspecting a slice takes
some 1 us, so thousands of slices would otherwise take all the time."""


class StuckSlices:
    """The slices in progress that have something to take back. Owner: poll thread."""

    def __init__(self) -> None:
        self._slices: dict[Slice, None] = {}
        self._looked_at = 0.0

    def add(self, slice_: Slice) -> None:
        """Inspect a dispatched slice from now on if it has several records."""
        if len(slice_.messages) > 1:
            self._slices[slice_] = None

    def remove(self, slice_: Slice) -> None:
        """Stop inspecting a slice: it is over, or has nothing to take back."""
        self._slices.pop(slice_, None)

    def find(self, now: float, usual_s: float, *, idle: bool) -> list[Slice]:
        """Return the slices whose unstarted records should be taken back.

        Inspects slices at most every 5 ms, less often if there are thousands. A slice is stuck if
        its record has made no progress for STUCK_S, or if it exceeds the target duration while
        slots are ``idle``.
        """
        if now - self._looked_at < max(SLICE_TARGET_S, len(self._slices) * LOOK_EVERY_S):
            return []
        self._looked_at = now
        stuck_s = max(STUCK_S, 2 * usual_s)
        return [
            slice_
            for slice_ in self._slices
            if slice_.started and _is_stuck(slice_, now, stuck_s, idle=idle)
        ]


def _is_stuck(slice_: Slice, now: float, stuck_s: float, *, idle: bool) -> bool:
    records = len(slice_.messages)
    if records == 1:
        return False
    claimed = slice_.claimed()
    if claimed == records:
        return False
    if claimed != slice_.progress:
        slice_.progress = claimed
        slice_.progress_at = now
        return idle and now - slice_.started > SLICE_TARGET_S
    return now - slice_.progress_at > stuck_s or (idle and now - slice_.started > SLICE_TARGET_S)
