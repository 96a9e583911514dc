"""Batches with records that the brokers refuse: the others are answered soon."""

from __future__ import annotations

import os

from tests.conftest import MakeTopic
from tests.waiting import wait_until
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.writing.batch_sending import BatchSender
from window_consumer.model.protocols import Copy
from window_consumer.runtime.log import own_logger
from window_consumer.testing.real_kafka import RealKafka

LARGE = {7, 307, 607, 907, 1207}


def test_several_refused_records_leave_the_others_time_to_be_sent(
    kafka: RealKafka, make_topic: MakeTopic
) -> None:
    topic = make_topic("events", 4, {"max.message.bytes": "20000"})
    sender = BatchSender(
        {"bootstrap.servers": kafka.bootstrap, "log_level": 0},
        "test",
        f"{topic}-0",
        ClientLog(own_logger()),
        timeout_s=9.0,
        holds_keys=False,
    )
    copies = [
        Copy(
            topic,
            None,
            b"%d" % (number % 50),
            os.urandom(30_000 if number in LARGE else 5),
            [],
            None,
        )
        for number in range(1_500)
    ]
    # A new Kafka makes the log of transactions first, which may take longer than a record waits.
    first = Copy(topic, None, b"first", b"small", [], None)
    wait_until(
        lambda: sender.send([first], 25.0, bool) == [None], 60.0, "transactions are possible"
    )
    answers = sender.send(copies, 25.0, bool)
    assert {place for place, answer in enumerate(answers) if answer is not None} == LARGE
    assert all(answer.refused for answer in answers if answer is not None)
