"""The first textbook model: a consumer per thread, each with a loop of its own."""

from __future__ import annotations

import threading

import confluent_kafka

from benchmarks.peers.runners.noting_confluent import hand_over_note, settings
from benchmarks.peers.runners.trial import Trial, begin

_BATCH = 500
_WAIT_S = 0.1


class Loop(threading.Thread):
    """Polls, handles records one after another, commits each batch.

    It begins once each loop has its partition. Otherwise the first would have them all during its
    first batch, and a run of some seconds would show little else.
    """

    def __init__(self, trial: Trial, loops: list[Loop]):
        super().__init__(name=f"consumer-{len(loops)}")
        self.owns = 0
        self._begun = False
        self._trial = trial
        self._loops = loops

    def run(self) -> None:
        """Consume until the end."""
        trial, handle = self._trial, self._trial.handler()

        def on_message(message: confluent_kafka.Message) -> None:
            handle(message.value() or b"")

        consumer = confluent_kafka.Consumer(settings(trial))
        consumer.subscribe([trial.topic], on_assign=self._assigned, on_revoke=self._revoked)
        while not all(loop.owns for loop in self._loops) and not trial.over.is_set():
            consumer.poll(_WAIT_S)
        self._begun = True
        consumer.resume(consumer.assignment())
        while not trial.over.is_set():
            batch = [each for each in consumer.consume(_BATCH, _WAIT_S) if each.error() is None]
            for message in batch:
                on_message(message)
            if batch:
                consumer.commit(asynchronous=True)
        # Closing waits for the answers to asynchronous commits.
        consumer.close()

    def _assigned(
        self, consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]
    ) -> None:
        consumer.assign(partitions)
        if not self._begun:
            consumer.pause(partitions)
        self.owns = len(partitions)

    def _revoked(self, _consumer: confluent_kafka.Consumer, _partitions: object) -> None:
        self.owns = 0


def main() -> None:
    """Run as many loops as there are partitions: more would have nothing to do."""
    trial = begin()
    hand_over_note(trial)
    loops: list[Loop] = []
    for _ in range(trial.partitions):
        loops.append(Loop(trial, loops))
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join()
    trial.answer("confluent-kafka")


if __name__ == "__main__":
    main()
