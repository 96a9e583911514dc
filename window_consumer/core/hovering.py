"""Start cells that make no progress: who is reported, and how often."""

from __future__ import annotations

from window_consumer.core.decisions import Hovering
from window_consumer.core.partition import Partition
from window_consumer.model.record import TopicPartition


class HoverWatch:
    """Reports a start cell that hovers, once every ``hover_s`` seconds. Owner: poll thread."""

    def __init__(self, hover_s: float):
        self._hover_s = hover_s
        self._reported: dict[TopicPartition, float] = {}

    def look(self, partition: Partition, now: float) -> Hovering | None:
        """Return what has to be reported of a partition now."""
        since = partition.window.hovering_since()
        reported = self._reported.get(partition.name, float("-inf"))
        if since is None or now - max(since, reported) < self._hover_s:
            return None
        seq = partition.window.cells[0].first_open_seq()
        failed = partition.failed.get(seq)
        if failed is None and partition.ordering.waits:
            return None  # nothing is wrong: it waits for its rate
        self._reported[partition.name] = now
        offset = partition.window.offsets.offset_of(seq)
        attempt = failed.calls + 1 if failed else 1
        return Hovering(partition.name, offset, attempt, now - since)

    def forget(self, name: TopicPartition) -> None:
        """Note that a partition is given up."""
        self._reported.pop(name, None)
