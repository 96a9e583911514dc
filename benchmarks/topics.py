"""The topics of the workloads: made and filled once per Kafka, then used again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import children
from benchmarks.workloads import PARTITIONS, TopicSpec
from window_consumer.kafka.cluster.groups import committed_offsets
from window_consumer.model.errors import RunError

_ANSWER_S = 10.0
_GONE_S = 60.0
_CHECK_S = 0.1

Say = Callable[[str], None]


class Topics:
    """The topics of one Kafka."""

    def __init__(self, bootstrap: str, *, deadline_s: float = _ANSWER_S):
        """``deadline_s`` limits the wait for answers that nothing depends on."""
        self.bootstrap = bootstrap
        self._deadline_s = deadline_s
        # We report connection errors once, instead of a client's line every second.
        self._client: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
        }
        self._admin = AdminClient(self._client)

    def filled(self, spec: TopicSpec, say: Say) -> str:
        """Return a topic with exactly the specified records; fill it if necessary.

        A topic of that name with other contents comes from an interrupted filling: it is deleted.
        """
        if spec.name in self._names():
            if list(self.log_ends(spec.name).values()) == [spec.records // PARTITIONS] * PARTITIONS:
                return spec.name
            say(f"{spec.name} is incomplete: deleting it")
            self.delete(spec.name)
        say(f"filling {spec.name} with {spec.records:,} records")
        self.make(spec.name)
        children.run("write", bootstrap=self.bootstrap, topic=spec.name, spec=spec)
        return spec.name

    def exists(self, name: str) -> bool:
        """Return whether there is such a topic."""
        return name in self._names()

    def make(
        self, name: str, partitions: int = PARTITIONS, config: dict[str, str] | None = None
    ) -> None:
        """Make a topic and wait until the broker that answers clients knows it."""
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config or {})
        try:
            self._admin.create_topics([new])[name].result(timeout=_ANSWER_S)
        except KafkaException as exception:
            raise RunError(f"{name} cannot be made: {exception.args[0].str()}") from exception
        deadline = time.monotonic() + _GONE_S
        while not self.exists(name):
            if time.monotonic() > deadline:
                raise RunError(f"{name} was made, but is not there after {_GONE_S:g} s")
            time.sleep(_CHECK_S)

    def delete(self, name: str) -> None:
        """Delete a topic and wait until it is gone."""
        try:
            self._admin.delete_topics([name])[name].result(timeout=_ANSWER_S)
        except KafkaException as exception:
            raise RunError(f"{name} cannot be deleted: {exception.args[0].str()}") from exception
        deadline = time.monotonic() + _GONE_S
        while name in self._names():
            if time.monotonic() > deadline:
                raise RunError(f"{name} was deleted, but is still there after {_GONE_S:g} s")
            time.sleep(_CHECK_S)

    def read_by(self, name: str, group: str) -> list[str]:
        """Return a topic and those that its records may have moved to, without dead letters."""
        copies = f"{group}.{name}.retry.", f"{group}.{name}.park"
        return [name, *(each for each in self._names() if each.startswith(copies))]

    def delete_copies(self, group: str) -> None:
        """Delete a group's retry topics and dead letters; where that fails they stay."""
        copies = [each for each in self._names() if each.startswith(f"{group}.")]
        if copies:
            self._admin.delete_topics(copies)

    def log_ends(self, name: str) -> Mapping[int, int]:
        """Return the end of each partition's log."""
        consumer = Consumer({**self._client, "group.id": "wc-bench"})
        try:
            ends = {}
            for partition in self._list(consumer)[name].partitions:
                found = consumer.get_watermark_offsets(TopicPartition(name, partition), _ANSWER_S)
                if found is None:
                    raise RunError(f"{name}[{partition}]: no answer within {_ANSWER_S:g} s")
                ends[partition] = found[1]
            return ends
        finally:
            consumer.close()

    def committed_equals_end(self, name: str, group: str) -> bool:
        """Return whether a group has committed a topic to its end."""
        return committed_offsets(self._client, group, name) == self.log_ends(name)

    def forget(self, group: str) -> None:
        """Delete a group that was used once; if that fails it stays, which is harmless."""
        asked = self._admin.delete_consumer_groups([group], request_timeout=self._deadline_s)
        for answer in asked.values():
            # An answer after the interpreter's end would crash the process.
            with contextlib.suppress(KafkaException, TimeoutError):
                answer.result(self._deadline_s + 1)

    def _names(self) -> Mapping[str, Any]:
        return self._list(self._admin)

    def _list(self, client: AdminClient | Consumer) -> Mapping[str, Any]:
        try:
            found: Mapping[str, Any] = client.list_topics(timeout=_ANSWER_S).topics
        except KafkaException as exception:
            raise RunError(
                f"no Kafka answers at {self.bootstrap} within {_ANSWER_S:g} s:"
                f" {exception.args[0].str()}"
            ) from exception
        return found
