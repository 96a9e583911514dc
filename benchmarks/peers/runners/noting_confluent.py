"""What runners on confluent-kafka share: settings, and a consumer that notes what it hands over.

Only timed runs note it: the others run with the unchanged client.
"""

from __future__ import annotations

from typing import Any

import confluent_kafka

from benchmarks.peers.runners.trial import Trial


def settings(trial: Trial) -> dict[str, Any]:
    """Return the settings of a consumer that is written by hand and commits by itself."""
    return {
        "bootstrap.servers": trial.bootstrap,
        "group.id": trial.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.queue.backoff.ms": 10,
        # As long as a broker requires: a killed process keeps its partitions until then.
        **({"session.timeout.ms": 6_000} if trial.is_killed else {}),
    }


def hand_over_note(trial: Trial) -> None:
    """Replace the client's Consumer with a recording one; call it before the peer imports it."""
    if not trial.timed:
        return

    class NotingConsumer(confluent_kafka.Consumer):
        def consume(self, *args: Any, **kwargs: Any) -> Any:
            messages = super().consume(*args, **kwargs)
            trial.handed_over(_values(messages))
            return messages

        def poll(self, *args: Any, **kwargs: Any) -> Any:
            message = super().poll(*args, **kwargs)
            if message is not None:
                trial.handed_over(_values([message]))
            return message

    confluent_kafka.Consumer = NotingConsumer  # type: ignore[misc] # peers find it by its name


def _values(messages: Any) -> Any:
    return [message.value() for message in messages if message.error() is None]
