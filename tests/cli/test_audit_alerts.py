"""Alerts of the audit: one for each bucket that lost something, once."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from window_consumer.audit.commands.alerts import Alerts
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.embedded import ApiKey, EmbeddedBroker, ErrorCode
from window_consumer.model.errors import RunError

LOG = ClientLog(logging.getLogger("window_consumer.client"))


def row(minute: int, **more: Any) -> dict[str, Any]:
    place = {"topic": "orders", "group": "shop", "bucket_ms": minute * 60_000}
    return {**place, "finding": "lost", "lost": 3, **more}


@pytest.fixture
def broker() -> Any:
    with EmbeddedBroker(topics={"alerts": 1}) as broker:
        yield broker


def alerts(broker: EmbeddedBroker, directory: Path) -> Alerts:
    return Alerts("alerts", broker.client_settings(), LOG, str(directory))


def test_a_bucket_is_reported_once(broker: EmbeddedBroker, tmp_path: Path) -> None:
    assert alerts(broker, tmp_path).write_new([row(1), row(2)]) == 2
    assert alerts(broker, tmp_path).write_new([row(2), row(1)]) == 0
    assert alerts(broker, tmp_path).write_new([row(1), row(3), row(1, finding="exchanged")]) == 2
    reported = broker.read_all("alerts")
    assert [message.key() for message in reported][:2] == [
        b"orders/shop/60000",
        b"orders/shop/120000",
    ]
    assert [json.loads(message.value())["bucket_ms"] // 60_000 for message in reported] == [
        1,
        2,
        3,
        1,
    ]
    assert json.loads(reported[0].value()) == {
        **row(1),
        "what": "bucket",
        "bucket": "1970-01-01T00:01:00+00:00",
    }


def test_what_was_not_taken_is_reported_the_next_time(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    missing = Alerts("nowhere", broker.client_settings(), LOG, str(tmp_path), 1.0)
    with pytest.raises(RunError, match="nowhere"):
        missing.write_new([row(1)])
    assert alerts(broker, tmp_path).write_new([row(1)]) == 1


def test_what_kafka_has_refused_is_reported_the_next_time(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    made = alerts(broker, tmp_path)
    broker.push_request_errors(ApiKey.PRODUCE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(RunError, match=r"\balerts\b.*TOPIC_AUTHORIZATION_FAILED"):
        made.write_new([row(1)])
    assert made.write_new([row(1)]) == 1
    assert len(broker.read_all("alerts")) == 1


def test_a_note_that_was_cut_short_by_a_kill_harms_neither_the_others_nor_the_next(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    assert alerts(broker, tmp_path).write_new([row(1), row(2)]) == 2
    notes = tmp_path / "audit-alerts.jsonl"
    notes.write_bytes(notes.read_bytes()[:-20])
    assert alerts(broker, tmp_path).write_new([row(1), row(2), row(3)]) == 2
    assert alerts(broker, tmp_path).write_new([row(1), row(2), row(3)]) == 0
