"""What to do when a position lies outside of the log: its records are gone, or never were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from window_consumer.model.errors import WorkerStoppedError
from window_consumer.model.protocols import Source
from window_consumer.model.record import TopicPartition

OnOutOfRange = Literal["fail", "earliest", "latest"]


class OutOfRange:
    """Applies ``on_out_of_range``. Owner: poll thread."""

    def __init__(
        self, source: Source, rule: OnOutOfRange, ask_s: float, warn: Callable[[str], None]
    ):
        self._source = source
        self._rule = rule
        self._ask_s = ask_s
        self._warn = warn

    def next_offset(self, name: TopicPartition, position: int) -> int:
        """Return where to go on; WorkerStoppedError where the rule is to fail.

        The range that is lost is reported either way.
        """
        low, end = self._source.log_range(name, self._ask_s)
        lost = _lost(position, low, end)
        if self._rule == "fail":
            raise WorkerStoppedError(
                f"{name}: {lost}; on_out_of_range is fail. Set it to earliest or latest to go on,"
                " or commit an offset for the group by hand"
            )
        offset = low if self._rule == "earliest" else end
        self._warn(f"{name}: {lost}; going on at {offset} (on_out_of_range: {self._rule})")
        return offset


def _lost(position: int, low: int, end: int) -> str:
    if position < low:
        return f"offsets {position}..{low - 1} are gone (retention or deletion)"
    return f"offset {position} lies beyond the log's end {end} (the log was cut or made anew)"
