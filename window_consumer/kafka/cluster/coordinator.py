"""Questions to a group's coordinator from a process that must not end because of them.

librdkafka (2.16) can abort the process when a question of an admin client to a coordinator fails
at a bad moment, as while a broker goes away (its issues 4605 and 5397). A worker asks one that has
just answered something else, by a client made for that; and what a consumer can be asked it asks a
consumer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from window_consumer.kafka.cluster.answers import in_words


class GroupQuestion:
    """What a group is like, asked. Owner: who asked; letting go of it ends its client."""

    def __init__(self, settings: Mapping[str, Any], log: Any, group: str, timeout_s: float):
        # The answer does not keep the client: whose thread gives it must not be who ends it.
        self._admin = AdminClient(dict(settings), logger=log)
        asked = self._admin.describe_consumer_groups([group], request_timeout=timeout_s)
        self._answer = asked[group]

    def done(self) -> bool:
        """Tell whether there is an answer, or none will come."""
        return self._answer.done()

    def answer(self) -> Any:
        """Return the client's description of the group, None where there was none."""
        return None if self._answer.exception() is not None else self._answer.result()


def committed_offsets(
    settings: Mapping[str, Any],
    group: str,
    names: Sequence[TopicPartition],
    what: str,
    timeout_s: float,
    log: Any,
) -> list[TopicPartition]:
    """Return what a group has committed, without joining it: negative offsets where nothing is.

    Raises a WindowConsumerError that speaks of ``what`` where there is no answer.
    """
    conf = {**settings, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer(conf, logger=log)
    try:
        found: list[TopicPartition] = consumer.committed(list(names), timeout=timeout_s)
    except KafkaException as exception:
        raise in_words(exception, what) from exception
    finally:
        consumer.close()
    refused = next((each.error for each in found if each.error is not None), None)
    if refused is not None:
        raise in_words(KafkaException(refused), what)
    return found
