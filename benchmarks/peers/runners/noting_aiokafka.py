"""Makes aiokafka's consumer record when it hands records over, whoever calls it.

Only timed runs use it: the others run with the unchanged client.
"""

from __future__ import annotations

from typing import Any

from aiokafka import AIOKafkaConsumer

from benchmarks.peers.runners.trial import Trial


def hand_over_note(trial: Trial) -> None:
    """Make the consumer record what it hands over."""
    if not trial.timed:
        return
    getone, getmany = AIOKafkaConsumer.getone, AIOKafkaConsumer.getmany

    async def noting_getone(self: Any, *partitions: Any) -> Any:
        record = await getone(self, *partitions)
        trial.handed_over([record.value])
        return record

    async def noting_getmany(self: Any, *partitions: Any, **kwargs: Any) -> Any:
        found = await getmany(self, *partitions, **kwargs)
        for records in found.values():
            trial.handed_over(record.value for record in records)
        return found

    AIOKafkaConsumer.getone, AIOKafkaConsumer.getmany = noting_getone, noting_getmany
