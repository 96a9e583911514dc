"""Writes messages from clients: with acks of all in-sync replicas, or to the delay service."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from window_consumer.config import WorkerConfig
from window_consumer.kafka.oauth import OauthToken, token_setting
from window_consumer.model.errors import WindowConsumerError
from window_consumer.model.produce import HeaderPairs, with_delivery
from window_consumer.plan.app_plan import AppPlan, PlannedWorker
from window_consumer.plan.built_in_workers import DELAY
from window_consumer.producer.errors import SendError
from window_consumer.producer.producer import Producer
from window_consumer.sqs.config import send_topic
from window_consumer.sqs.queue import MessageRefusedError, SentMessage

_ACK_S: Final = 30.0
"""How long a client waits for the ack; clients of SQS wait 60 s for a response."""

_CLOSE_S: Final = 2.0
"""The wait for acks when the process ends: clients send again what was not answered."""

_NO_TOPIC: Final = (
    "the queue {name} has no topic to write to, because its worker reads several: name one in"
    " workers.{worker}.pull.send_to"
)
_NO_DELAYS: Final = (
    "there is no delay service: add it to the configuration, with {topic} in delay.to,"
    " or send without DelaySeconds"
)


class QueueSender:
    """Writes the records that clients of one queue send. Owner: the endpoint's event loop."""

    def __init__(self, plan: AppPlan, worker: PlannedWorker, token: OauthToken | None):
        self._worker = worker.config
        self._topic = send_topic(worker.config)
        self._delays = _delay_service(plan, self._topic)
        self._properties = {**worker.producer, **token_setting(worker.producer, token)}
        self._producer: Producer | None = None

    async def send(
        self,
        value: bytes,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes]],
        delay_s: float,
        message_id: str | None,
    ) -> SentMessage:
        """Write a record; raises WindowConsumerError, see ``Queue.send``."""
        topic = self._topic
        if topic is None:
            name = self._worker.name
            raise MessageRefusedError(_NO_TOPIC.format(name=name, worker=name))
        pairs: HeaderPairs = headers
        if delay_s > 0:
            if self._delays is None:
                raise MessageRefusedError(_NO_DELAYS.format(topic=topic))
            pairs = with_delivery(pairs, topic, delay_s, None)
            topic = self._delays
        if self._producer is None:
            # Must not block the event loop: a client that gets an error sends again.
            self._producer = Producer(self._properties, max_block=0.0)
        future = self._producer.send(topic, key, value, headers=pairs, id=message_id)
        try:
            async with asyncio.timeout(_ACK_S):
                written = await future
        except TimeoutError:
            raise WindowConsumerError(
                f"{topic}: the brokers have not acknowledged the record within {_ACK_S:g} s; it"
                " may still arrive"
            ) from None
        except SendError as error:
            raise MessageRefusedError(str(error)) if error.refused else error from None
        return SentMessage(
            message_id=future.id,
            topic=written.topic,
            partition=written.partition,
            offset=written.offset,
        )

    def close(self) -> None:
        """Wait for outstanding acks, then close."""
        if self._producer is not None:
            self._producer.close(timeout=_CLOSE_S)


def _delay_service(plan: AppPlan, target: str | None) -> str | None:
    """Return the topic of the delay service if it delivers to a topic; None without it."""
    service: WorkerConfig | None = plan.config.workers.get(DELAY)
    if service is None or service.own_topics is None or target is None:
        return None
    return service.topics[0] if service.own_topics.delivers_to(target) else None
