"""Requests to a group's coordinator that must not end the process.

librdkafka (2.16) can abort the process when an admin client's request to a coordinator fails at a
bad moment, such as while a broker goes away (its issues 4605 and 5397). So a worker queries only a
coordinator that has just answered something else, with a separate client for that request. It uses
a consumer for every request that a consumer supports.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from window_consumer.kafka.cluster.answers import in_words
from window_consumer.kafka.errors import cause_of, is_absence

_ANY_TOPIC = "any"
"""Its offset is requested only to reach the group's coordinator; it need not exist."""

_PROBE_S = 1.0
"""How long a coordinator may take for a small answer before the request is repeated."""


class GroupQuestion:
    """A pending request for a group's description. Owner: the caller.

    Dropping it ends its client.
    """

    def __init__(self, settings: Mapping[str, Any], log: Any, group: str, timeout_s: float):
        # The answer must not keep the client alive: the thread that delivers it must not destroy
        # the client.
        self._admin = AdminClient(dict(settings), logger=log)
        requests = self._admin.describe_consumer_groups([group], request_timeout=timeout_s)
        self._answer = requests[group]

    def done(self) -> bool:
        """Return whether there is an answer, or none will come."""
        return self._answer.done()

    def answer(self) -> Any:
        """Return the client's description of the group, or None without an answer."""
        return None if self._answer.exception() is not None else self._answer.result()


def wait_for_coordinator(
    settings: Mapping[str, Any], group: str, what: str, timeout_s: float, log: Any
) -> None:
    """Return once the coordinator of a group answers.

    A refusal is an answer, too. Call this before the admin client asks the coordinator: if that is
    dead, the admin client may abort the whole process (librdkafka issue 4605). Raises a
    WindowConsumerError that mentions ``what`` if there is no answer.
    """
    deadline = time.monotonic() + timeout_s
    consumer = Consumer({**settings, "group.id": group, "enable.auto.commit": False}, logger=log)
    try:
        while True:
            try:
                consumer.committed([TopicPartition(_ANY_TOPIC, 0)], timeout=_PROBE_S)
            except KafkaException as exception:
                # Without permission to see the group, a message has the reason, not the answer.
                message = consumer.poll(0.0)
                refusal = None if message is None else message.error()
                error = refusal or cause_of(exception)
                if error is None or not is_absence(error):
                    return
                if time.monotonic() > deadline:
                    raise in_words(KafkaException(error), what) from exception
            else:
                return
    finally:
        consumer.close()


def committed_offsets(
    settings: Mapping[str, Any],
    group: str,
    names: Sequence[TopicPartition],
    what: str,
    timeout_s: float,
    log: Any,
) -> list[TopicPartition]:
    """Return a group's committed offsets without joining it; negative if nothing is committed.

    Raises a WindowConsumerError that mentions ``what`` if there is no answer.
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
