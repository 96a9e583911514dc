"""aiokafka: one task that fetches batches, handles their records, and commits each batch."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer

from benchmarks.peers.runners.noting_aiokafka import hand_over_note
from benchmarks.peers.runners.trial import Trial, begin

_BATCH = 500
_WAIT_MS = 100


async def consume(trial: Trial) -> None:
    """Handle the records one after another, or with ``kind=gather`` those of a batch at once."""
    handle = trial.coroutine()
    slots = asyncio.Semaphore(trial.slots)

    async def in_slot(value: bytes) -> None:
        async with slots:
            await handle(value)

    consumer = AIOKafkaConsumer(
        trial.topic,
        bootstrap_servers=trial.bootstrap,
        group_id=trial.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    gather = trial.options.get("kind") == "gather"
    try:
        while not trial.over.is_set():
            found = await consumer.getmany(timeout_ms=_WAIT_MS, max_records=_BATCH)
            values = [record.value for records in found.values() for record in records]
            if gather:
                await asyncio.gather(*map(in_slot, values))
            else:
                for value in values:
                    await handle(value)
            if values:
                await consumer.commit()
    finally:
        await consumer.stop()


def main() -> None:
    """Run until the end."""
    trial = begin()
    hand_over_note(trial)
    asyncio.run(consume(trial))
    trial.answer("aiokafka")


if __name__ == "__main__":
    main()
