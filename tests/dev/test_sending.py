"""The API of the form: it writes a record, and names what is wrong with one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.admin.admin import TOKEN, Asking, asking
from tests.commands import kafka_of
from tests.console.configs import context as context_of
from window_consumer.dev.feature import DevFeature
from window_consumer.dev.page import DevPages
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.plan.feature import PageContext

SEND = "/api/dev/send"


@pytest.fixture
def context(embedded: EmbeddedBroker, tmp_path: Path) -> PageContext:
    embedded.create_topic("orders", 4)
    embedded.create_topic("refunds", 1)
    charge = {"topics": ["orders"], "group": "shop", "ordering": "unordered"}
    refund = {"patterns": ["^ref"], "group": "shop-refund", "ordering": "unordered"}
    workers = {"charge": charge, "refund": refund}
    return context_of(tmp_path, {"kafka": kafka_of(embedded), "workers": workers})


@pytest.fixture
def ask(context: PageContext) -> Iterator[Asking]:
    with asking(pages={"dev": DevPages(context)}) as ask:
        yield ask


def post(ask: Asking, **fields: Any) -> Any:
    return ask(SEND, "POST", json.dumps(fields))


def test_a_record_is_written_as_it_was_given(ask: Asking, embedded: EmbeddedBroker) -> None:
    given = {"topic": "orders", "key": "ü", "value": '{"a": 1}', "headers": {"type": "paid"}}
    answer = post(ask, **given, partition=3)
    assert (answer.status, answer.json) == (200, {"topic": "orders", "partition": 3, "offset": 0})
    (record,) = embedded.read_all("orders")
    assert (record.key(), record.value()) == ("ü".encode(), b'{"a": 1}')
    assert dict(record.headers() or [])["type"] == b"paid"


def test_records_of_a_key_go_to_one_partition_and_one_may_have_no_value(
    ask: Asking, embedded: EmbeddedBroker
) -> None:
    places = [post(ask, topic="orders", key="k", value=None).json for _ in range(2)]
    assert [each["offset"] for each in places] == [0, 1]
    assert [record.value() for record in embedded.read_all("orders")] == [None, None]


def test_a_topic_that_a_pattern_matches_will_do(ask: Asking) -> None:
    assert post(ask, topic="refunds").status == 200
    found = ask("/api/dev").json
    assert (found["topics"], found["patterns"]) == (["orders"], ["^ref"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("topic", each) for each in (None, "", 1, "elsewhere")),
        *(("key", 1), ("value", {}), ("value", "\ud800"), ("headers", []), ("headers", {"a": 1})),
        *(("partition", each) for each in (-1, "0", True, 9)),
        ("offset", 3),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_written(
    ask: Asking, embedded: EmbeddedBroker, field: str, value: object
) -> None:
    answer = post(ask, **{"topic": "orders", field: value})
    assert answer.status == 400
    assert answer.json["error"].startswith(field)
    assert embedded.read_all("orders") == []


def test_what_is_no_json_object_is_refused(ask: Asking) -> None:
    assert ask(SEND, "POST", "[]").status == 400


def test_sending_is_guarded_as_other_actions_are(
    context: PageContext, embedded: EmbeddedBroker
) -> None:
    record = json.dumps({"topic": "orders"})
    with asking(token=TOKEN, pages={"dev": DevPages(context)}) as ask:
        assert ask(SEND, "POST", record).status == 401
        bearer = f"Bearer {TOKEN}"
        foreign = ask(SEND, "POST", record, authorization=bearer, sec_fetch_site="cross-site")
        assert foreign.status == 403
        assert embedded.read_all("orders") == []
        assert ask(SEND, "POST", record, authorization=bearer).status == 200


def test_only_dev_has_the_form(context: PageContext) -> None:
    assert DevFeature().pages(context) is None
