"""The second textbook model: one thread polls, a pool handles, one commit per batch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import confluent_kafka

from benchmarks.peers.runners.noting_confluent import hand_over_note, settings
from benchmarks.peers.runners.trial import begin

_BATCH = 500
_WAIT_S = 0.1


def main() -> None:
    """Hand each batch to the pool, wait for the last of it, commit."""
    trial = begin()
    hand_over_note(trial)
    handle = trial.handler()

    def on_message(message: confluent_kafka.Message) -> None:
        handle(message.value() or b"")

    consumer = confluent_kafka.Consumer(settings(trial))
    consumer.subscribe([trial.topic])
    with ThreadPoolExecutor(trial.slots) as pool:
        while not trial.over.is_set():
            batch = [each for each in consumer.consume(_BATCH, _WAIT_S) if each.error() is None]
            for _ in pool.map(on_message, batch):
                pass
            if batch:
                consumer.commit(asynchronous=False)
    consumer.close()
    trial.answer("confluent-kafka")


if __name__ == "__main__":
    main()
