"""Which dead letters of a cluster were put back, for reports on many groups at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from attrs import frozen

from window_consumer.kafka import settings
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.messaging.state import read_resolved, state_topic, topics_of
from window_consumer.model.errors import WindowConsumerError

ANSWER_S: Final = 5.0
"""So long Kafka may say nothing before a report is made without it."""

_SUFFIX: Final = state_topic("")

Run = tuple[str, int, int, int]
"""A dead-letter topic, a partition, the first offset and the last one."""


@frozen
class PutBack:
    """What was put back, as far as that can be told."""

    runs: tuple[Run, ...] = ()
    unknown: str | None = None
    """Why it cannot be told; nothing is in ``runs`` then."""


def put_back(client: Mapping[str, Any], log: ClientLog, groups: Sequence[str]) -> PutBack:
    """Read what these groups remember of their dead letters; without any, what all do.

    ``client`` are the user's Kafka properties. Raises nothing: a report stands without it.
    """
    try:
        cluster = Cluster(settings.admin_settings(client, "dlq"), log)
        cluster.wait_until_there(ANSWER_S, lambda _reason, _waited_s: None)
        there = cluster.topic_names(ANSWER_S)
        wanted = {state_topic(group) for group in groups}
        states = [
            name for name in there if name.endswith(_SUFFIX) and (not groups or name in wanted)
        ]
        if not states:
            return PutBack()
        with TopicReader(client, log, patience_s=ANSWER_S) as reader:
            return PutBack(
                tuple(chain.from_iterable(_runs(cluster, reader, each) for each in states))
            )
    except WindowConsumerError as error:
        return PutBack(unknown=str(error))


def _runs(cluster: Cluster, reader: TopicReader, state: str) -> Iterator[Run]:
    said = list(chain.from_iterable(reader.read(reader.spans(state))))
    found = cluster.topics(sorted(topics_of(said)))
    for name, topic in found.items():
        for partition, first, last in read_resolved(said, name, topic.topic_id).runs():
            yield name, partition, first, last
