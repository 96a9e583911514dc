"""Messages about topics that cannot be prepared, each once, and topics that do not fit.

Only texts belong here. ``preflight`` queries the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping

from window_consumer.config import WorkerConfig
from window_consumer.engine.retry.retry_topics import RetryTopicLevel
from window_consumer.kafka.cluster.topics import Topic
from window_consumer.model.errors import WindowConsumerError
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.start_timeout import LOGGER

_NOT_READ = "%s: topic %s is not read until this is fixed; all others are: %s"
_STILL_READ = "%s: topic %s is read as before until this is fixed: %s"


class TopicTroubles:
    """Remembers the topics with errors. Owner: one thread at a time."""

    def __init__(self, worker: str, mask: Callable[[str], str]):
        self._worker = worker
        self._mask = mask
        self._reported: set[str] = set()

    def __contains__(self, topic: object) -> bool:
        return topic in self._reported

    def report(
        self, errors: Mapping[str, WindowConsumerError], there: Container[str], read: Container[str]
    ) -> None:
        """Log topics with new errors, and those that have recovered.

        ``there`` are all topics that the worker should read, ``read`` the ones that it does read.
        """
        for topic, error in errors.items():
            if topic not in self._reported:
                text = _STILL_READ if topic in read else _NOT_READ
                LOGGER.warning(
                    text,
                    self._worker,
                    topic,
                    self._mask(str(error)),
                    extra={"event": LogEvent.TOPIC_REFUSED},
                )
        for topic in sorted(self._reported - errors.keys()):
            if topic in there:
                LOGGER.info(
                    "%s: topic %s has recovered",
                    self._worker,
                    topic,
                    extra={"event": LogEvent.TOPIC_RESTORED},
                )
        self._reported = set(errors)


def wider_copies(
    worker: WorkerConfig, retry_levels: Mapping[str, RetryTopicLevel], topics: Mapping[str, Topic]
) -> Iterator[str]:
    """Yield a warning for each retry topic of an ordered worker that is wider than its source."""
    if worker.ordering == "unordered":
        return
    for name, retry_level in retry_levels.items():
        copies, source = topics.get(name), topics.get(retry_level.source)
        if copies is not None and source is not None and copies.partitions > source.partitions:
            yield (
                f"{name} has {copies.partitions} partitions and"
                f" {retry_level.source} {source.partitions}:"
                " the group may assign a partition and its copies to different members. The copies"
                " then wait until one member has both, at the latest when only one runs."
                f" Give {retry_level.source} as many partitions, or read {name} to its end and"
                " delete it: it is recreated"
            )
