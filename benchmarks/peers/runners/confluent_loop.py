"""confluent-kafka alone: one thread that polls, handles, and commits each second."""

from __future__ import annotations

import time

import confluent_kafka

from benchmarks.peers.runners.noting_confluent import hand_over_note, settings
from benchmarks.peers.runners.trial import begin

_BATCH = 500
_WAIT_S = 0.1
_COMMIT_S = 1.0


def main() -> None:
    """Handle the records one after another."""
    trial = begin()
    hand_over_note(trial)
    handle = trial.handler()

    def on_message(message: object) -> None:
        handle(message.value())  # type: ignore[attr-defined] # a message of the client

    consumer = confluent_kafka.Consumer(settings(trial))
    consumer.subscribe([trial.topic])
    committed_at, new = time.monotonic(), False
    while not trial.over.is_set():
        for message in consumer.consume(_BATCH, _WAIT_S):
            if message.error() is None:
                on_message(message)
                new = True
        if new and time.monotonic() - committed_at >= _COMMIT_S:
            committed_at, new = time.monotonic(), False
            consumer.commit(asynchronous=True)
    if new:
        consumer.commit(asynchronous=False)
    consumer.close()
    trial.answer("confluent-kafka")


if __name__ == "__main__":
    main()
