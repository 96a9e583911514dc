"""sentry-arroyo: a processor with one step, in the main thread or in a pool of threads."""

from __future__ import annotations

from typing import Any

from benchmarks.peers.runners.noting_confluent import hand_over_note
from benchmarks.peers.runners.trial import begin

_PENDING_PER_SLOT = 16


def main() -> None:
    """Run ``RunTask``, or with ``kind=threads`` ``RunTaskInThreads``; commit once a second."""
    trial = begin()
    hand_over_note(trial)
    # ruff: noqa: PLC0415 - it takes the client's Consumer when imported
    from arroyo.backends.kafka import KafkaConsumer
    from arroyo.backends.kafka.configuration import build_kafka_consumer_configuration
    from arroyo.commit import ONCE_PER_SECOND
    from arroyo.processing import StreamProcessor
    from arroyo.processing.strategies import CommitOffsets, RunTask, RunTaskInThreads
    from arroyo.types import Topic

    handle = trial.handler()
    threads = trial.options.get("kind") == "threads"

    def on_message(message: Any) -> Any:
        handle(message.payload.value)
        return message.payload

    class Steps:
        def create_with_partitions(self, commit: Any, _partitions: Any) -> Any:
            last = CommitOffsets(commit)
            if threads:
                pending = trial.slots * _PENDING_PER_SLOT
                return RunTaskInThreads(on_message, trial.slots, pending, last)
            return RunTask(on_message, last)

        def shutdown(self) -> None:
            """Do nothing."""

    settings = build_kafka_consumer_configuration(
        default_config={"fetch.queue.backoff.ms": 10},
        bootstrap_servers=[trial.bootstrap],
        auto_offset_reset="earliest",
        group_id=trial.group,
    )
    processor = StreamProcessor(
        consumer=KafkaConsumer(settings),
        topic=Topic(trial.topic),
        processor_factory=Steps(),
        commit_policy=ONCE_PER_SECOND,
    )
    trial.when_over(processor.signal_shutdown)
    processor.run()
    trial.answer("sentry-arroyo", "confluent-kafka")


if __name__ == "__main__":
    main()
