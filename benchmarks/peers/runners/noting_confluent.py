"""Makes confluent-kafka's consumer record when it hands records over, whoever calls it.

Only timed runs use it: the others run with the unchanged client.
"""

from __future__ import annotations

from typing import Any

import confluent_kafka

from benchmarks.peers.runners.trial import Trial


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
