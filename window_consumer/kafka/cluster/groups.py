"""Consumer groups seen from outside: their topics and commits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from window_consumer.engine.commits.commit_metadata import decode
from window_consumer.kafka import errors
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster.answers import in_words
from window_consumer.kafka.oauth import OauthToken, token_setting
from window_consumer.kafka.settings import admin_settings
from window_consumer.model.errors import RunError
from window_consumer.model.offset_ranges import Ranges, without

_ANSWER_S = 20.0


def groups_reading(
    user_settings: Mapping[str, Any],
    topic: str,
    log: ClientLog,
    oauth_token: OauthToken | None = None,
) -> list[str]:
    """Return the names of the groups, sorted; groups that we may not see are missing.

    Raises a WindowConsumerError on failure.
    """
    conf = {
        **admin_settings(user_settings, "groups"),
        **token_setting(user_settings, oauth_token),
        "error_cb": lambda _error: None,
    }
    try:
        admin = AdminClient(conf, logger=log)
        listed = admin.list_consumer_groups(request_timeout=_ANSWER_S).result(_ANSWER_S)
        groups = sorted(each.group_id for each in listed.valid)
        found = {group for group in groups if _has_committed(admin, group, topic)}
        return sorted(found | _with_members(admin, groups, topic))
    except KafkaException as exception:
        raise in_words(exception, f"groups of {topic}") from exception


def _has_committed(admin: AdminClient, group: str, topic: str) -> bool:
    wanted = [ConsumerGroupTopicPartitions(group)]
    (answer,) = admin.list_consumer_group_offsets(wanted, request_timeout=_ANSWER_S).values()
    offsets = answer.result(_ANSWER_S).topic_partitions or []
    return any(each.topic == topic and each.offset >= 0 for each in offsets)


def _with_members(admin: AdminClient, groups: list[str], topic: str) -> set[str]:
    if not groups:
        return set()
    answers = admin.describe_consumer_groups(groups, request_timeout=_ANSWER_S)
    return {
        name
        for name, answer in answers.items()
        for member in answer.result(_ANSWER_S).members
        if member.assignment is not None
        and any(each.topic == topic for each in member.assignment.topic_partitions)
    }


@frozen
class PartitionProgress:
    """A group's progress in one partition."""

    committed: int
    """Negative if nothing is committed."""
    metadata: str | None
    """The commit's metadata, see ``engine.commits.commit_metadata``."""
    start: int
    """First offset of the log."""
    end: int
    """End of the log, exclusive."""
    old: int
    """First offset whose record is of the requested time or later; the end if there is none."""

    @property
    def unfinished(self) -> Ranges:
        """The offsets that the group has not finished; holes in the log count, too."""
        start = max(self.committed, self.start)
        note = decode(self.metadata or "")
        finished = note.finished if note is not None and note.next_offset == start else ()
        log = [(start, self.end)] if start < self.end else []
        return without(log, [(each.start, each.stop) for each in finished])

    @property
    def in_wheel(self) -> int:
        """How many of its finished records wait in the files of a delay service."""
        note = decode(self.metadata or "")
        is_ours = note is not None and note.next_offset == max(self.committed, self.start)
        return note.waiting if note is not None and is_ours and note.finished else 0


def committed_offsets(
    client: Mapping[str, Any], group: str, topic: str, timeout_s: float = 10.0
) -> dict[int, int]:
    """Return the committed offset of each partition; those without one are left out.

    ``client`` holds a consumer's settings. Raises a WindowConsumerError on failure.
    """
    consumer = Consumer({**client, "group.id": group, "enable.auto.commit": False})
    try:
        metadata = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
        if metadata.error is not None:
            raise errors.translate(metadata.error, f"offsets of {group}: {topic}")
        wanted = [TopicPartition(topic, partition) for partition in metadata.partitions]
        found = consumer.committed(wanted, timeout=timeout_s)
    except KafkaException as exception:
        error = errors.cause_of(exception)
        if error is None:
            raise RunError(f"offsets of {group}: {exception}") from exception
        raise errors.translate(error, f"offsets of {group}") from exception
    finally:
        consumer.close()
    for each in found:
        if each.error is not None:
            raise errors.translate(each.error, f"offsets of {group}: {topic}[{each.partition}]")
    return {each.partition: each.offset for each in found if each.offset >= 0}
