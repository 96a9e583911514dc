"""quixstreams: a streaming dataframe with one update per record."""

from __future__ import annotations

from benchmarks.peers.runners.noting_confluent import hand_over_note
from benchmarks.peers.runners.trial import begin


def main() -> None:
    """Run until the end, with a commit each second."""
    trial = begin()
    hand_over_note(trial)
    from quixstreams import Application  # noqa: PLC0415 - it takes the client's Consumer

    handle = trial.handler()

    def on_value(value: bytes) -> None:
        handle(value)

    app = Application(
        broker_address=trial.bootstrap,
        consumer_group=trial.group,
        auto_offset_reset="earliest",
        auto_create_topics=False,
        use_changelog_topics=False,
        commit_interval=1.0,
        loglevel="ERROR",
        consumer_extra_config={"fetch.queue.backoff.ms": 10},
    )
    topic = app.topic(trial.topic, key_deserializer="bytes", value_deserializer="bytes")
    app.dataframe(topic).update(on_value)
    trial.when_over(app.stop)
    app.run()
    trial.answer("quixstreams", "confluent-kafka")


if __name__ == "__main__":
    main()
