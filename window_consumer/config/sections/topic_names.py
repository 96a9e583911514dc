"""The names of a worker's topics for copies: retry topics, park topic, dead-letter topic."""

from __future__ import annotations

import re
from typing import Final

from attrs import frozen

from window_consumer.config.sections import TopicsConfig
from window_consumer.config.sections.worker import WorkerConfig
from window_consumer.config.units import format_duration

ENTRY: Final = "now"
"""The delay in the name of the topic for redriven dead letters."""

_MARK: Final = "\0"
"""A character that no name contains."""


@frozen
class TopicNames:
    """Fills the templates of the section ``topics``, or those of a built-in worker."""

    _worker: WorkerConfig
    _topics: TopicsConfig

    def dlq(self, topic: str) -> str:
        """Return the name of the dead-letter topic for the records of a topic."""
        own = self._worker.own_topics
        return self._filled(self._topics.dlq if own is None else own.dlq, topic=topic)

    def retry(self, topic: str, delay: str) -> str:
        """Return the name of the retry topic of a delay such as ``10s``.

        With ENTRY, it is the topic for redriven dead letters.
        """
        own = self._worker.own_topics
        template = self._topics.retry if own is None else own.retry
        return self._filled(template, topic=topic, delay=delay)

    def park(self, topic: str) -> str:
        """Return the name of the topic where the records of a topic are parked."""
        return self._filled(self._topics.park, topic=topic)

    def ladder(self, topic: str) -> list[str]:
        """Return the names of the topics for copies of a topic's records: DLQ, levels, park."""
        worker = self._worker
        if worker.is_broadcast:
            return []
        levels = [self.retry(topic, format_duration(each)) for each in worker.retry.levels]
        return [self.dlq(topic), *levels, *([self.park(topic)] if worker.parks else [])]

    def is_read(self, name: str) -> bool:
        """Return whether this is a topic for copies that the worker itself reads."""
        if self._worker.is_broadcast:
            return False
        examples = [self.retry(_MARK, _MARK)]
        if self._worker.parks:
            examples.append(self.park(_MARK))
        patterns = (".+".join(map(re.escape, each.split(_MARK))) for each in examples)
        return any(re.fullmatch(pattern, name) for pattern in patterns)

    def _filled(self, template: str, **names: str) -> str:
        names["group"] = self._worker.group
        pattern = "|".join(map(re.escape, names))
        return re.sub(rf"\{{({pattern})\}}", lambda found: names[found[1]], template)
