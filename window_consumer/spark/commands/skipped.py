"""Reports the records that a job skips because Kafka no longer has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from attrs import frozen

from window_consumer.model.errors import WindowConsumerError

if TYPE_CHECKING:
    from window_consumer.spark.checkpoints import Place, Spans

Beginnings = Callable[[str], Mapping[int, int]]
"""Returns the first offset of each partition of a topic; raises a WindowConsumerError."""


@frozen
class SkippedRanges:
    """Checks each batch before it is read, for jobs that may skip deleted records.

    Only Spark's log shows records that are deleted between this check and the read.
    """

    job: str
    beginnings: Beginnings
    report: Callable[[str], None]

    def check(self, spans: Spans) -> None:
        """Report each lost range of a batch; an unreachable broker does not end the job."""
        topics = sorted({topic for topic, _ in spans})
        for topic in topics:
            try:
                begins = self.beginnings(topic)
            except WindowConsumerError as error:
                self.report(
                    f"{self.job}: cannot check whether records of {topic} are gone: {error}"
                )
                continue
            for place, (first, end) in sorted(spans.items()):
                if place[0] == topic:
                    self._report_range(place, first, min(end, begins.get(place[1], first)))

    def _report_range(self, place: Place, first: int, end: int) -> None:
        if end > first:
            topic, partition = place
            self.report(
                f"{self.job}: {topic} partition {partition} offsets {first} to {end - 1} were lost"
                " before they were read: retention or a deletion removed them"
            )
