"""``window-consumer dlq list``."""

from __future__ import annotations

import re
import time

import pytest

from tests.cli.dead_letters import DLQ, SHOP, config_for, fill, letter
from tests.commands import Commands
from tests.golden_texts import Golden
from tests.model.test_dead_letter import SPRING
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord

HOUR_MS = 3_600_000


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> Commands:
    commands.configure(config_for(embedded.bootstrap))
    commands.application(SHOP)
    return commands


def ago(milliseconds: int) -> str:
    return str(round(time.time() * 1000) - milliseconds)


def test_dead_letters_are_counted_by_what_they_have_in_common(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    fill(
        embedded,
        letter(1),
        letter(2, app_version="8", failed_at=ago(30 * HOUR_MS)),
        letter(3, reason="FATAL", error_class="shop.NoCard", error_fingerprint="feed"),
        NewRecord(b"not ours"),
    )
    ended = shop.run("dlq", "list", "--json")
    assert (ended.code, ended.err) == (0, "")
    found = ended.json["topics"][DLQ]
    assert (found["worker"], found["source"]) == ("charge", "orders")
    assert (found["total"], found["open"], found["resolved"]) == (4, 4, 0)
    assert found["reasons"] == {"RETRIES_EXHAUSTED": 2, "FATAL": 1, "unknown": 1}
    assert found["classes"] == {"ValueError": 2, "shop.NoCard": 1, "unknown": 1}
    assert found["versions"] == {"7": 2, "8": 1, "unknown": 1}
    assert found["fingerprints"]["0123456789abcdef"] == {
        "class": "ValueError",
        "count": 2,
        "latest": "orders/0/1",
    }
    assert found["ages"]["under 1h"] == 3
    assert found["ages"]["1d to 7d"] == 1
    assert abs(found["oldest_ms"] - int(ago(30 * HOUR_MS))) < 600_000


def test_the_same_in_words(shop: Commands, embedded: EmbeddedBroker, golden: Golden) -> None:
    fill(embedded, letter(1), letter(2, failed_at=ago(30 * HOUR_MS)))
    ended = shop.run("dlq", "list")
    assert ended.code == 0
    lines = ended.out.splitlines()
    golden(lines[0])
    assert "         2  RETRIES_EXHAUSTED" in lines
    assert "         2  0123456789abcdef  ValueError  orders/0/1" in lines
    assert "         1  1d to 7d" in lines
    assert any(re.search(r" oldest .*\b1d\b", line) for line in lines)


def test_what_strangers_wrote_does_not_command_the_terminal(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    fill(embedded, letter(1, error_class="Red\x1b[31m\nreason", app_version="\x07"))
    ended = shop.run("dlq", "list")
    assert "1  Red\\x1b[31m\\nreason" in ended.out
    assert "\x1b" not in ended.out
    assert "\x07" not in ended.out


def test_only_those_that_fulfil_the_condition_are_counted(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    fill(
        embedded,
        letter(1, own=[("tenant", b"eu")]),
        letter(2, own=[("tenant", b"us")]),
        letter(3, own=[("tenant", b"eu")], reason="FATAL"),
    )
    condition = "reason == 'RETRIES_EXHAUSTED' and header('tenant') == 'eu' and time > ago(1h)"
    found = shop.run("dlq", "list", "--json", "--where", condition).json["topics"][DLQ]
    assert found["total"] == 1


def test_a_condition_that_cannot_be_read_is_wrong_usage(shop: Commands) -> None:
    ended = shop.run("dlq", "list", "--where", "raeson == 'FATAL'")
    assert ended.code == 2
    assert "reason" in ended.err


def test_topics_of_former_sources_are_found_and_those_of_other_groups_are_not(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    fill(embedded, letter(1))
    fill(embedded, letter(1), topic="shop-charge.former.dlq")
    fill(embedded, letter(1), topic="shop-bill.orders.dlq")
    fill(embedded, NewRecord(b""), topic="shop-charge.orders.retry.10s")
    assert set(shop.run("dlq", "list", "--json").json["topics"]) == {DLQ, "shop-charge.former.dlq"}
    only = shop.run("dlq", "list", "--json", "--topic", "former").json["topics"]
    assert set(only) == {"shop-charge.former.dlq"}


def test_a_topic_whose_group_begins_like_anothers_belongs_to_the_longer_one(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    config = config_for(embedded.bootstrap)
    config["workers"]["bill"] = {"group": "shop-charge.eu", "topics": ["bills"]}
    shop.configure(config)
    fill(embedded, letter(1), topic="shop-charge.eu.former.dlq")
    found = shop.run("dlq", "list", "--json").json["topics"]
    assert found["shop-charge.eu.former.dlq"]["worker"] == "bill"
    assert shop.run("dlq", "list", "--json", "--worker", "charge").json["topics"] == {}


def test_any_topic_of_any_cluster_can_be_looked_at(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    fill(embedded, NewRecord(b"{}", b"k", SPRING), topic="orders-dlt")
    where = ("--bootstrap", embedded.bootstrap, "--topic", "orders-dlt")
    found = commands.run("dlq", "list", *where, "--json").json["topics"]["orders-dlt"]
    assert found["worker"] is None
    assert found["classes"] == {"java.lang.IllegalStateException": 1}


def test_without_dead_letters_there_is_nothing_to_count(shop: Commands) -> None:
    ended = shop.run("dlq", "list")
    assert ended.code == 0
    assert len(ended.out.splitlines()) == 1
    assert DLQ not in ended.out


def test_the_application_is_only_named_where_it_may_have_what_is_missing(
    commands: Commands,
) -> None:
    commands.configure({"kafka": {"bootstrap.servers": "h:1"}, "workers": {"charge": {}}})
    for command in ("list", "redrive"):
        ended = commands.run("dlq", command)
        assert ended.code == 2
        assert "workers.charge.group: " in ended.err
        assert "--app MODULE:APP" in ended.err
        ended = commands.run("dlq", command, "-c", "nowhere.yaml")
        assert ended.code == 2
        assert "--app" not in ended.err


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (("--worker", "charg"), "charge"),
        (("--topic", "nowhere"), "--topic nowhere"),
        (("-c", "missing.yaml"), "missing.yaml"),
        (("--bootstrap", "h:1"), "--bootstrap needs --topic"),
        (("--bootstrap", "h:1", "--topic", "t", "--worker", "charge"), "--worker"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_to_do(
    shop: Commands, arguments: tuple[str, ...], reported: str
) -> None:
    ended = shop.run("dlq", "list", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert reported in ended.err


def test_a_broker_that_does_not_answer_ends_with_1_and_no_secret_is_reported(
    commands: Commands,
) -> None:
    config = config_for("127.0.0.1:1")
    config["kafka"]["sasl.password"] = "127.0.0.1:1"
    commands.configure(config)
    ended = commands.run("dlq", "list", "--start-timeout", "500ms")
    assert ended.code == 1
    assert "***" in ended.err
    assert "127.0.0.1:1" not in ended.said


def test_no_secret_of_the_configuration_is_listed(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    config = config_for(embedded.bootstrap)
    config["kafka"]["sasl.password"] = "hunter2"
    commands.configure(config)
    fill(embedded, letter(1, error_class="shop.hunter2"))
    for arguments in ((), ("--json",)):
        ended = commands.run("dlq", "list", *arguments)
        assert ended.code == 0
        assert "shop.***" in ended.out
        assert "hunter2" not in ended.said


def test_what_decorators_give_is_known_with_the_application(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    fill(embedded, letter(1))
    kafka = {"bootstrap.servers": embedded.bootstrap}
    shop.configure({"kafka": kafka, "workers": {"charge": {}}})
    shop.application(SHOP.replace('"orders"', '"orders", group="shop-charge"'))
    ended = shop.run("dlq", "list")
    assert ended.code == 2
    assert "--app MODULE:APP" in ended.err
    assert shop.run("dlq", "list", "--json", "--app", "shop:app").json["topics"][DLQ]["total"] == 1
