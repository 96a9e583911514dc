"""Sends commits through the client and separates its answers.

The client gives one answer for all partitions of a request: if the broker refuses one of them, all
seem refused. So partitions of a failed request are sent again in separate requests, until each has
its own answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from window_consumer.kafka import errors
from window_consumer.model.errors import CommitFailedError
from window_consumer.model.protocols import Commit
from window_consumer.model.record import TopicPartition

Results = dict[TopicPartition, CommitFailedError | None]


class Commits:
    """The commits of one client. Owner: poll thread.

    Only the answer to a partition's last commit counts. An answer to an earlier commit, or in an
    earlier assignment, does not show what is committed now.
    """

    def __init__(self) -> None:
        self._sent: dict[TopicPartition, Commit] = {}
        """The last commit of each partition that has no answer yet."""
        self._alone: set[TopicPartition] = set()
        """Partitions whose next commit is sent in a separate request."""
        self._answers: Results = {}

    def on_commit(self, error: KafkaError | None, partitions: Sequence[ClientPartition]) -> None:
        """Record an answer; the client calls this from within its poll."""
        names = [TopicPartition(each.topic, each.partition) for each in partitions]
        shared = len(names) > 1
        for name, each in zip(names, partitions, strict=True):
            sent = self._sent.get(name)
            if sent is not None and (sent.next_offset, sent.metadata) == _content(each):
                del self._sent[name]
                self._answers[name] = self._result(name, each.error or error, shared=shared)

    def take(self) -> Results:
        """Return the answers received, each once."""
        answers, self._answers = self._answers, {}
        return answers

    def take_of(self, names: Iterable[TopicPartition]) -> Results:
        """Return the answers received for these partitions, each once."""
        return {name: self._answers.pop(name) for name in names if name in self._answers}

    def remove(self, names: Iterable[TopicPartition]) -> None:
        """Ignore answers for partitions that were given up."""
        for name in names:
            self._sent.pop(name, None)
            self._alone.discard(name)

    def send(self, consumer: Consumer, commits: Sequence[Commit]) -> None:
        """Send commits; their answers arrive through ``on_commit``."""
        for request in self._requests(commits):
            self._sent.update((commit.name, commit) for commit in request)
            try:
                consumer.commit(offsets=_client_offsets(request), asynchronous=True)
            except KafkaException as exception:
                self._answers.update(self._all_failed(request, exception))

    def send_and_block(self, consumer: Consumer, commits: Sequence[Commit]) -> Results:
        """Send commits and block as long as the client does; for use within its callbacks.

        The broker handles one client's requests in order, so pending requests arrive first.
        """
        results: Results = {}
        for request in self._requests(commits):
            for commit in request:
                self._sent.pop(commit.name, None)
            try:
                answers = consumer.commit(offsets=_client_offsets(request), asynchronous=False)
            except KafkaException as exception:
                results.update(self._all_failed(request, exception))
                continue
            shared = len(request) > 1
            for commit, each in zip(request, answers or (), strict=True):
                results[commit.name] = self._result(commit.name, each.error, shared=shared)
        return results

    def _requests(self, commits: Sequence[Commit]) -> Iterator[list[Commit]]:
        if not self._alone:
            yield list(commits)
            return
        together = [commit for commit in commits if commit.name not in self._alone]
        if together:
            yield together
        yield from ([commit] for commit in commits if commit.name in self._alone)

    def _all_failed(self, commits: Sequence[Commit], exception: KafkaException) -> Results:
        error = errors.cause_of(exception)
        for commit in commits:
            self._sent.pop(commit.name, None)
        if error is None:
            return dict.fromkeys((c.name for c in commits), CommitFailedError(str(exception)))
        shared = len(commits) > 1
        return {commit.name: self._result(commit.name, error, shared=shared) for commit in commits}

    def _result(
        self, name: TopicPartition, error: KafkaError | None, *, shared: bool
    ) -> CommitFailedError | None:
        if error is None:
            self._alone.discard(name)
            return None
        if shared and errors.is_of_one_partition(error):
            self._alone.add(name)
            return CommitFailedError(f"{errors.text_of(error)}, here or for another partition")
        self._alone.discard(name)
        return errors.commit_failure(error)


def _content(partition: ClientPartition) -> tuple[int, str]:
    return partition.offset, partition.metadata or ""


def _client_offsets(commits: Sequence[Commit]) -> list[ClientPartition]:
    return [
        ClientPartition(*commit.name, commit.next_offset, commit.metadata) for commit in commits
    ]
