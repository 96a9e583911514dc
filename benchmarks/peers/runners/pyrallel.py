"""pyrallel-consumer: coroutines, in order by key or unordered."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from benchmarks.peers.runners.noting_confluent import hand_over_note
from benchmarks.peers.runners.trial import Trial, begin


async def consume(trial: Trial) -> None:
    """Run until the end."""
    # ruff: noqa: PLC0415 - it takes the client's Consumer when imported
    from pyrallel_consumer.config import KafkaConfig
    from pyrallel_consumer.consumer import PyrallelConsumer
    from pyrallel_consumer.dto import ExecutionMode, OrderingMode

    handle = trial.coroutine()

    async def worker(item: Any) -> None:
        await handle(item.payload)

    config = KafkaConfig(
        BOOTSTRAP_SERVERS=[trial.bootstrap],
        CONSUMER_GROUP=trial.group,
        AUTO_OFFSET_RESET="earliest",
        dlq_enabled=False,
    )
    config.parallel_consumer.ordering_mode = OrderingMode(trial.options["order"])
    config.parallel_consumer.execution.mode = ExecutionMode.ASYNC
    config.parallel_consumer.execution.max_in_flight = trial.slots
    consumer = PyrallelConsumer(config=config, worker=worker, topic=trial.topic)
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    trial.when_over(lambda: loop.call_soon_threadsafe(over.set))
    await consumer.start()
    await over.wait()
    await consumer.stop()


def main() -> None:
    """Run the consumer; answer when it has stopped."""
    trial = begin()
    hand_over_note(trial)
    logging.disable(logging.WARNING)
    asyncio.run(consume(trial))
    trial.answer("pyrallel-consumer", "confluent-kafka")


if __name__ == "__main__":
    main()
