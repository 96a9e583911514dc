"""The first model of the books: a consumer per thread, each of them a loop of its own."""

from __future__ import annotations

import threading

import confluent_kafka

from benchmarks.peers.runners.noting_confluent import note_hand_over
from benchmarks.peers.runners.trial import Trial, begin

_BATCH = 500
_WAIT_S = 0.1


def consume(trial: Trial) -> None:
    """Ask, handle one after another, commit each batch."""
    handle = trial.handler()

    def on_message(message: confluent_kafka.Message) -> None:
        handle(message.value() or b"")

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": trial.bootstrap,
            "group.id": trial.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.subscribe([trial.topic])
    while not trial.over.is_set():
        batch = [each for each in consumer.consume(_BATCH, _WAIT_S) if each.error() is None]
        for message in batch:
            on_message(message)
        if batch:
            consumer.commit(asynchronous=True)
    # Closing serves what the asynchronous commits have to say.
    consumer.close()


def main() -> None:
    """Run as many threads as there are partitions: more would have nothing to do."""
    trial = begin()
    note_hand_over(trial)
    threads = [
        threading.Thread(target=consume, args=(trial,), name=f"consumer-{number}")
        for number in range(trial.partitions)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trial.answer("confluent-kafka")


if __name__ == "__main__":
    main()
