"""The fourth textbook model: one thread polls, a pool handles, finished offsets are in one map.

The last to finish sets a partition's offset: its commit may pass records that still run, or go back
behind finished ones.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Semaphore

import confluent_kafka

from benchmarks.peers.runners.noting_confluent import hand_over_note, settings
from benchmarks.peers.runners.trial import Trial, begin

_BATCH = 500
_WAIT_S = 0.1
_COMMIT_S = 1.0
_QUEUED = 2
"""Records for each thread that the pool has at once."""


class SharedOffsets:
    """Polls, hands records to the pool, and commits what the map holds each second."""

    def __init__(self, trial: Trial):
        self._trial = trial
        self._handle = trial.handler()
        self._offsets: dict[int, int] = {}
        self._room = Semaphore(trial.slots * _QUEUED)

    def run(self) -> None:
        """Consume until the end."""
        trial, committed_at = self._trial, time.monotonic()
        consumer = confluent_kafka.Consumer(settings(trial))
        consumer.subscribe([trial.topic])
        with ThreadPoolExecutor(trial.slots) as pool:
            while not trial.over.is_set():
                for message in consumer.consume(_BATCH, _WAIT_S):
                    if message.error() is None:
                        self._room.acquire()
                        pool.submit(self._finish, message)
                    if time.monotonic() - committed_at >= _COMMIT_S:
                        committed_at = time.monotonic()
                        self._commit(consumer, asynchronous=True)
        self._commit(consumer, asynchronous=False)
        consumer.close()

    def _finish(self, message: confluent_kafka.Message) -> None:
        self._handle(message.value() or b"")
        self._offsets[message.partition() or 0] = (message.offset() or 0) + 1
        self._room.release()

    def _commit(self, consumer: confluent_kafka.Consumer, *, asynchronous: bool) -> None:
        offsets = [
            confluent_kafka.TopicPartition(self._trial.topic, *each)
            for each in list(self._offsets.items())
        ]
        if offsets:
            consumer.commit(offsets=offsets, asynchronous=asynchronous)  # type: ignore[call-overload] # both are fine


def main() -> None:
    """Handle the records in a pool."""
    trial = begin()
    hand_over_note(trial)
    SharedOffsets(trial).run()
    trial.answer("confluent-kafka")


if __name__ == "__main__":
    main()
