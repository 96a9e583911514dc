"""What is in the spool reaches the topic, once brokers take it, and is deleted then."""

from __future__ import annotations

import logging
import os
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.commands import DEADLINE_S
from tests.kernel import event_writer
from tests.logged import events_in, fields_of, lines_of
from tests.telemetry.tracing import LOGGER
from tests.waiting import wait_until
from window_consumer.kafka.embedded import ApiKey, EmbeddedBroker, ErrorCode
from window_consumer.model.log_events import LogEvent
from window_consumer.trace.event_batch import encoded
from window_consumer.trace.recording.exporter import ExporterFigures, TraceExporter, Written
from window_consumer.trace.recording.exporters import Acks, way_out
from window_consumer.trace.recording.shipper import SpoolShipper
from window_consumer.trace.recording.spool import Orphans, Spool

TOPIC = "wc.trace"


def way_to(
    broker: EmbeddedBroker, directory: Path | None, topic: str = TOPIC, timeout_s: float = 30.0
) -> TraceExporter:
    return way_out(
        partial(events, broker, topic, timeout_s),
        topic,
        LOGGER,
        acks="1",
        directory=directory,
        max_bytes=10**9,
        ship_after_s=0.0,
    )


def events(
    broker: EmbeddedBroker, topic: str = TOPIC, timeout_s: float = 30.0, acks: Acks = "all"
) -> Any:
    settings = {"bootstrap.servers": broker.bootstrap, "linger.ms": 1}
    return event_writer(settings, topic, acks, timeout_s, LOGGER.getChild("client"))


def batches(*numbers: int) -> list[Written]:
    return [Written(b'{"n":%d}' % number, 1) for number in numbers]


def values(broker: EmbeddedBroker) -> list[bytes]:
    return sorted(record.value() for record in broker.read_all(TOPIC))


def answered(way: TraceExporter) -> int:
    """Let the way out hear what became of its batches; return how many events are lost."""
    way.write([])
    return way.lost


@pytest.fixture
def broker(embedded: EmbeddedBroker) -> EmbeddedBroker:
    embedded.create_topic(TOPIC, 1)
    return embedded


def test_what_is_written_is_shipped_and_deleted(broker: EmbeddedBroker, tmp_path: Path) -> None:
    way = way_to(broker, tmp_path)
    way.start()
    way.write(batches(1, 2))
    way.write([])
    wait_until(lambda: len(values(broker)) == 2)
    way.write(batches(3))
    way.close(DEADLINE_S)
    assert values(broker) == [b'{"n":1}', b'{"n":2}', b'{"n":3}']
    assert list(tmp_path.iterdir()) == []
    assert way.lost == 0


def test_what_a_killed_process_left_is_shipped_its_torn_end_left_out(
    broker: EmbeddedBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gone = Spool(tmp_path, 10**9, LOGGER)
    gone.append(batches(1, 2, 3))
    (path,) = tmp_path.glob("*.spool")
    os.truncate(path, path.stat().st_size - 5)
    gone.close()
    way = way_to(broker, tmp_path)
    way.start()
    wait_until(lambda: not list(tmp_path.glob("*.spool")))
    way.close(DEADLINE_S)
    assert values(broker) == [b'{"n":1}', b'{"n":2}']
    assert way.figures().torn == 1
    assert fields_of(caplog, LogEvent.TRACE_BATCHES_TORN)["args"][-1] == 1
    assert list(tmp_path.iterdir()) == []


def test_while_brokers_refuse_everything_stays_in_the_spool(
    broker: EmbeddedBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    broker.push_request_errors(ApiKey.PRODUCE, *[ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2)
    way = way_to(broker, tmp_path)
    way.start()
    way.write(batches(1))
    wait_until(lambda: LogEvent.TRACE_EVENTS_HELD in events_in(caplog))
    wait_until(lambda: way.figures().blocked_s)
    assert way.figures().held_bytes == sum(path.stat().st_size for path in tmp_path.glob("*.spool"))
    wait_until(lambda: values(broker) == [b'{"n":1}'])
    way.close(DEADLINE_S)
    assert way.figures() == ExporterFigures({"disk": 0, "broker": 0}, held_bytes=0)
    assert LogEvent.TRACE_RECOVERED in events_in(caplog)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_shipped_by_the_end_is_left_for_the_next_process(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        way = way_to(broker, tmp_path)
    way.start()
    way.write(batches(1))
    way.close(0.2)
    assert len(list(tmp_path.glob("*.spool"))) == 1
    with EmbeddedBroker() as broker:
        broker.create_topic(TOPIC, 1)
        way = way_to(broker, tmp_path)
        way.start()
        wait_until(lambda: values(broker) == [b'{"n":1}'])
        way.close(DEADLINE_S)
    assert list(tmp_path.iterdir()) == []


def test_a_batch_that_no_broker_takes_holds_up_nobody(
    broker: EmbeddedBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    way = way_to(broker, tmp_path)
    way.start()
    large = encoded("w", 7, 12, {"topic": "x" * 2_000_000}, {})
    way.write([Written(b"x" * 2_000_000, 1), Written(large, 12), *batches(1)])
    way.close(DEADLINE_S)
    assert values(broker) == [b'{"n":1}']
    # What somebody else may have written counts as one event, the other batch says how many it has.
    assert (way.lost, way.figures().lost) == (13, {"disk": 0, "broker": 13})
    refused = [vars(each)["args"][0] for each in lines_of(caplog, LogEvent.TRACE_BATCH_REFUSED)]
    assert refused == [1, 12]
    assert list(tmp_path.iterdir()) == []


def test_straight_to_kafka_what_is_refused_is_lost_counted_and_said_once(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    broker.push_request_errors(ApiKey.PRODUCE, *[ErrorCode.MESSAGE_TOO_LARGE] * 2)
    way = way_to(broker, None)
    for number in (1, 2, 3):
        way.write(batches(number))
        wait_until(lambda expected=number: answered(way) + len(values(broker)) == expected)  # type: ignore[misc] # bound in the loop
        assert number == 3 or way.figures().blocked_s > 0
    assert (way.lost, values(broker)) == (2, [b'{"n":3}'])
    way.close(DEADLINE_S)
    assert way.figures() == ExporterFigures({"broker": 2})
    said = [each for each in events_in(caplog) if each.startswith("trace.")]
    assert said == [LogEvent.TRACE_EVENTS_LOST, LogEvent.TRACE_RECOVERED]


def test_a_topic_that_is_missing_costs_its_events_and_no_more(embedded: EmbeddedBroker) -> None:
    way = way_to(embedded, None, timeout_s=1.0)
    way.write(batches(1))
    wait_until(lambda: answered(way) == 1)
    assert way.figures().lost == {"broker": 1}
    assert way.figures().blocked_s > 0
    embedded.create_topic(TOPIC, 1)
    written = [1]

    def arrives() -> bool:
        """Write an event; until the client has found the topic, it is lost like the first."""
        written.append(written[-1] + 1)
        way.write(batches(written[-1]))
        wait_until(lambda: answered(way) + len(values(embedded)) == len(written))
        return bool(values(embedded))

    wait_until(arrives)
    assert values(embedded) == [b'{"n":%d}' % written.pop()]
    wait_until(lambda: (answered(way), way.figures().blocked_s) == (len(written), 0))
    way.close(DEADLINE_S)


def test_a_topic_that_is_missing_costs_nothing_with_a_spool(
    embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    way = way_to(embedded, tmp_path, timeout_s=1.0)
    way.start()
    way.write(batches(1, 2))
    way.write([])
    wait_until(lambda: way.figures().blocked_s)
    assert way.figures().held_bytes
    embedded.create_topic(TOPIC, 1)
    wait_until(lambda: not list(tmp_path.glob("*.spool")))
    assert set(values(embedded)) == {b'{"n":1}', b'{"n":2}'}
    way.close(DEADLINE_S)
    assert way.figures() == ExporterFigures({"disk": 0, "broker": 0}, held_bytes=0)


def test_a_file_that_somebody_deletes_holds_up_nobody(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    gone = Spool(tmp_path, 10**9, LOGGER)
    gone.append(batches(1))
    gone.finish()
    finished = deque(gone.finished)
    gone.finished[0].unlink()
    gone.append(batches(2))
    gone.finish()
    finished.append(gone.finished[-1])
    shipping = SpoolShipper(
        finished, Orphans(tmp_path, LOGGER), lambda: events(broker), TOPIC, LOGGER
    )
    shipping.start()
    wait_until(lambda: values(broker) == [b'{"n":2}'])
    shipping.close(DEADLINE_S)
    gone.close()
    assert shipping.blocked_s == 0
    assert list(tmp_path.iterdir()) == []
