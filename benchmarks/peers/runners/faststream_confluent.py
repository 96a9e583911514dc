"""FastStream on confluent-kafka: a subscriber, one record after another or several at once."""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.peers.runners.noting_confluent import hand_over_note
from benchmarks.peers.runners.trial import Trial, begin


async def raw(message: Any) -> bytes:
    """Return a value unchanged."""
    body: bytes = message.body
    return body


def subscribed(trial: Trial) -> Any:
    """Return the application: it acknowledges after each record, with ``kind=workers`` before.

    Several workers are only possible with commits by the client itself.
    """
    # ruff: noqa: PLC0415 - it takes the client's Consumer when imported
    from faststream import AckPolicy, FastStream
    from faststream.confluent import KafkaBroker

    handle = trial.coroutine()

    async def on_body(body: bytes) -> None:
        await handle(body)

    several = trial.options.get("kind") == "workers"
    broker: Any = KafkaBroker(trial.bootstrap, logger=None, allow_auto_create_topics=False)
    broker.subscriber(
        trial.topic,
        group_id=trial.group,
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.ACK_FIRST if several else AckPolicy.ACK,
        decoder=raw,
        **({"max_workers": trial.slots} if several else {}),
    )(on_body)
    return FastStream(broker, logger=None)


def main() -> None:
    """Run the application; answer when it has stopped."""
    trial = begin()
    hand_over_note(trial)
    app = subscribed(trial)
    trial.when_over(app.exit)
    asyncio.run(app.run())
    trial.answer("faststream", "confluent-kafka")


if __name__ == "__main__":
    main()
