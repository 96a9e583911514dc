"""The third textbook model: several threads on one partition, each with ``assign`` and ``seek``.

A partition is cut into stripes. Each of its threads has a consumer of its own, handles every n-th
stripe, and commits its end. There is one offset for a partition: the commits of slower threads
overwrite those of faster ones, and the other way round.
"""

from __future__ import annotations

import threading

import confluent_kafka

from benchmarks.peers.runners.noting_confluent import hand_over_note, settings
from benchmarks.peers.runners.trial import Trial, begin

_STRIPE = 100
_WAIT_S = 0.1
_TIMEOUT_S = 10.0


class Stripes(threading.Thread):
    """Handles every ``step``-th stripe of a partition, from ``first`` on."""

    def __init__(self, trial: Trial, partition: int, first: int, step: int):
        super().__init__(name=f"stripes-{partition}-{first}")
        self._trial = trial
        self._partition = partition
        self._begin = first
        self._step = step

    def run(self) -> None:
        """Consume until the end."""
        trial, handle = self._trial, self._trial.handler()
        consumer = confluent_kafka.Consumer(settings(trial))
        if self._is_there(consumer):
            consumer.assign([self._at(self._begin)])
        left = _STRIPE
        while not trial.over.is_set():
            batch = [each for each in consumer.consume(left, _WAIT_S) if each.error() is None]
            for message in batch:
                handle(message.value() or b"")
            if batch:
                left -= len(batch)
                end = (batch[-1].offset() or 0) + 1
                consumer.commit(offsets=[self._at(end)], asynchronous=True)
            if not left:
                self._begin, left = self._begin + self._step, _STRIPE
                if self._is_there(consumer):
                    consumer.seek(self._at(self._begin))
        consumer.close()

    def _is_there(self, consumer: confluent_kafka.Consumer) -> bool:
        """Wait until the stripe has records: beyond the log's end a client begins at 0."""
        place = self._at(self._begin)
        while not self._trial.over.is_set():
            _, end = consumer.get_watermark_offsets(place, _TIMEOUT_S)
            if end > self._begin:
                return True
            self._trial.over.wait(_WAIT_S)
        return False

    def _at(self, offset: int) -> confluent_kafka.TopicPartition:
        return confluent_kafka.TopicPartition(self._trial.topic, self._partition, offset)


def main() -> None:
    """Run as many threads as there are slots, equally many for each partition."""
    trial = begin()
    hand_over_note(trial)
    threads = max(1, trial.slots // trial.partitions)
    names = [
        confluent_kafka.TopicPartition(trial.topic, partition)
        for partition in range(trial.partitions)
    ]
    consumer = confluent_kafka.Consumer(settings(trial))
    committed = consumer.committed(names, _TIMEOUT_S)
    consumer.close()
    running = [
        Stripes(trial, each.partition, max(each.offset, 0) + _STRIPE * number, _STRIPE * threads)
        for each in committed
        for number in range(threads)
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    trial.answer("confluent-kafka")


if __name__ == "__main__":
    main()
