"""FastStream on aiokafka with its add-on for concurrent tasks, which commits in batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker
from faststream_concurrent_aiokafka import (
    KafkaConcurrentProcessingMiddleware,
    initialize_concurrent_processing,
    stop_concurrent_processing,
)

from benchmarks.peers.runners.noting_aiokafka import hand_over_note
from benchmarks.peers.runners.trial import Trial, begin

_COMMIT_RECORDS = 500
_COMMIT_S = 1.0


async def raw(message: Any) -> bytes:
    """Return a value unchanged."""
    body: bytes = message.body
    return body


def subscribed(trial: Trial) -> Any:
    """Return the application."""
    handle = trial.coroutine()

    async def on_body(body: bytes) -> None:
        await handle(body)

    broker = KafkaBroker(trial.bootstrap, logger=None, allow_auto_create_topics=False)
    broker.add_middleware(KafkaConcurrentProcessingMiddleware)
    broker.subscriber(
        trial.topic,
        group_id=trial.group,
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.MANUAL,
        decoder=raw,
    )(on_body)

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        await initialize_concurrent_processing(
            context=broker.context,
            concurrency_limit=trial.slots,
            commit_batch_size=_COMMIT_RECORDS,
            commit_batch_timeout_sec=_COMMIT_S,
        )
        yield

    async def flush() -> None:
        # Before the consumers leave: afterwards the last commit would be refused.
        await stop_concurrent_processing(broker.context)

    return FastStream(broker, lifespan=lifespan, logger=None, on_shutdown=[flush])


def main() -> None:
    """Run the application; answer when it has stopped."""
    trial = begin()
    hand_over_note(trial)
    app = subscribed(trial)
    trial.when_over(app.exit)
    asyncio.run(app.run())
    trial.answer("faststream", "faststream-concurrent-aiokafka", "aiokafka")


if __name__ == "__main__":
    main()
