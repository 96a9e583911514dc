"""One client of a worker's group: its consumer object and the state of that object."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from window_consumer.kafka.assignment import Assignment
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.commits import Commits, Results
from window_consumer.kafka.watchdogs.client import ClientWatchdog, MakeClientWatchdog
from window_consumer.model.errors import CommitFailedError, GivenUpError, RunError
from window_consumer.model.protocols import Commit
from window_consumer.model.record import TopicPartition

CHUNK = 3000
"""Records per call of the client's consume.

Each call releases the interpreter's lock. With 500, the slots' threads and the poll thread wait for
each other six times as often, and a worker whose handler does nothing is 6 % slower. More gains
nothing.
"""

_SERVE_S = 0.05


class Connection:
    """Creates a client and owns it. Another connection replaces a client that gave up.

    Owner: poll thread. The client's callbacks only record here.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        log: ClientLog,
        make_watchdog: MakeClientWatchdog = ClientWatchdog,
    ):
        self.troubles: list[KafkaError] = []
        """Errors that the client reported about itself, for the listener."""
        self.commits = Commits()
        self._given_up: set[TopicPartition] = set()
        """Partitions given up since the last wait for a commit."""
        self.watchdog = make_watchdog(settings, notices_silence=True)
        noting = {"error_cb": self._on_error, "on_commit": self.commits.on_commit}
        try:
            self.consumer = Consumer({**settings, **noting}, logger=log)
        except KafkaException as exception:
            raise RunError(f"the consumer cannot be created: {exception.args[0]}") from exception
        strategy = str(settings.get("partition.assignment.strategy", ""))
        classic = settings["group.protocol"] == "classic"
        incremental = not classic or "cooperative" in strategy
        self.assignment = Assignment(self.consumer, incremental=incremental)

    def _on_error(self, error: KafkaError) -> None:
        self.troubles.append(error)
        self.watchdog.record_error(error)

    def chunks(self, max_records: int, timeout_s: float) -> Iterator[list[Any]]:
        """Yield records and errors, one call of the client at a time; waits only for the first.

        A call that returns less than requested is the last, because more would need a round trip.
        Process each chunk before you request the next, while it is in the processor's cache.
        ``assignment.moved`` names the partitions that were moved during the call.
        """
        moved = self.assignment.moved
        left = max(1, max_records)
        wanted = min(CHUNK, left)
        moved.clear()
        chunk: list[Any] = self.consumer.consume(wanted, 0)
        full = len(chunk) == wanted
        if not chunk and timeout_s > 0:
            moved.clear()
            chunk = self.consumer.consume(1, timeout_s)
            full = bool(chunk)
        if chunk:
            self.watchdog.on_contact()
        yield chunk
        left -= len(chunk)
        while full and left > 0:
            wanted = min(CHUNK, left)
            moved.clear()
            try:
                chunk = self.consumer.consume(wanted, 0)
            except KafkaException as exception:
                # Records read before are not lost; the next call raises again if necessary.
                self.record_error(exception)
                return
            full = len(chunk) == wanted
            left -= len(chunk)
            yield chunk

    def record_error(self, exception: KafkaException) -> None:
        """Keep an error that the client raised, for the listener; raise others again."""
        error = exception.args[0] if exception.args else None
        if not isinstance(error, KafkaError):
            raise exception
        self.troubles.append(error)

    def commit_and_wait(self, commits: Sequence[Commit], timeout_s: float) -> Results:
        """Send commits and serve the client until they are answered, at most ``timeout_s``.

        Meanwhile the client may be asked to give up a partition. Then nobody waits for that
        partition's answer, and the commit must not be sent again, whatever the answer.
        """
        deadline = time.monotonic() + timeout_s
        wanted = {commit.name for commit in commits}
        self._given_up.clear()
        self.commits.send(self.consumer, commits)
        found = self.commits.take_of(wanted)
        while wanted - found.keys() - self._given_up and time.monotonic() < deadline:
            message = self.consumer.poll(_SERVE_S)
            if message is not None:
                self._put_back(message)
            found.update(self.commits.take_of(wanted))
        late = wanted.difference(found)
        self.commits.remove(late)
        failure = CommitFailedError(f"no answer within {timeout_s:g} s")
        found.update(dict.fromkeys(late, failure))
        lost = {name for name in self._given_up & wanted if found[name] is not None}
        return {**found, **dict.fromkeys(lost, GivenUpError())}

    def _put_back(self, message: Any) -> None:
        """Put a record back: the client can only be served by taking a record from it."""
        error = message.error()
        if error is None:
            name = TopicPartition(message.topic(), message.partition())
            self.assignment.put_back(name, message.offset())
        else:
            self.assignment.record_problem(message, error)

    def give_up(self, names: Sequence[TopicPartition]) -> None:
        """Remove partitions; answers to their commits no longer matter."""
        self._given_up.update(names)
        self.assignment.give_up(names)
        self.commits.remove(names)

    def close(self, timeout_s: float) -> bool:
        """Close on a separate thread: the client's close can hang; return False if it does."""
        closer = threading.Thread(target=self.consumer.close, name="wc-close", daemon=True)
        closer.start()
        closer.join(timeout_s)
        return not closer.is_alive()
