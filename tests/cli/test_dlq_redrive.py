"""``dlq redrive``, on an embedded broker."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import pytest

from tests.commands import Commands, kafka_of
from tests.golden_texts import Golden
from window_consumer.audit.count import CountTier, decode
from window_consumer.kafka.embedded import ApiKey, EmbeddedBroker, ErrorCode, NewRecord

DEAD, ENTRY, STATE = "shop.orders.dlq", "shop.orders.retry.now", "shop.dlq.state"
PARTITIONS = 2


def letters(numbers: Sequence[int], reason: bytes = b"FATAL") -> list[NewRecord]:
    return [
        NewRecord(
            b"value %d" % number,
            b"key %d" % number,
            [
                ("user", b"\xff"),
                ("wc-id", b"orders/%d/%d" % (number % PARTITIONS, number)),
                ("wc-orig-topic", b"orders"),
                ("wc-orig-partition", b"%d" % (number % PARTITIONS)),
                ("wc-orig-offset", b"%d" % number),
                ("wc-format", b"1"),
                ("wc-reason", reason),
                ("wc-error-class", b"shop.InvalidOrder"),
                ("wc-error-fingerprint", b"f%d" % (number % 3)),
                ("wc-app-version", b"7"),
                ("wc-last-failure", b"%d" % (1_700_000_000_000 + number)),
            ],
            number % PARTITIONS,
        )
        for number in numbers
    ]


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> Commands:
    """One worker with twelve dead letters; every third has another reason."""
    for name, partitions in {"orders": PARTITIONS, DEAD: PARTITIONS, ENTRY: PARTITIONS}.items():
        embedded.create_topic(name, partitions)
    embedded.create_topic(STATE, 1)
    embedded.fill(DEAD, letters([n for n in range(12) if n % 3]))
    embedded.fill(DEAD, letters(range(0, 12, 3), b"EXPIRED"))
    configure(commands, embedded)
    return commands


def configure(commands: Commands, broker: EmbeddedBroker, **worker: Any) -> None:
    charge = {"topics": ["orders"], "group": "shop", **worker}
    commands.configure({"kafka": kafka_of(broker), "workers": {"charge": charge}})


def redrive(commands: Commands, *options: str, code: int = 0) -> dict[str, Any]:
    """Run it and return what it says of its only topic."""
    ended = commands.run("dlq", "redrive", "--json", *options)
    assert ended.code == code, ended.err
    (said,) = ended.json["redrives"]
    found: dict[str, Any] = said
    return found


def values(broker: EmbeddedBroker, topic: str = ENTRY) -> list[bytes]:
    return sorted(message.value() for message in broker.read_all(topic))


def test_dead_letters_go_back_to_the_groups_own_topic_and_their_partition(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    said = redrive(shop)
    assert (said["read"], said["redriven"], said["complete"]) == (12, 12, True)
    assert (said["dead_letters"], said["to"]) == (DEAD, ENTRY)
    entered = embedded.read_all(ENTRY)
    assert sorted(message.value() for message in entered) == sorted(
        b"value %d" % number for number in range(12)
    )
    for message in entered:
        number = int(message.value().split()[1])
        assert message.partition() == number % PARTITIONS
        assert message.key() == b"key %d" % number
        headers = dict(message.headers())
        assert (headers["user"], headers["wc-redrives"]) == (b"\xff", b"1")
        assert "wc-reason" not in headers
    assert len(embedded.read_all(DEAD)) == 12, "nothing is deleted"


def test_the_next_run_goes_on_and_restart_begins_anew(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    redrive(shop)
    assert redrive(shop)["read"] == 0
    embedded.fill(DEAD, letters([20]))
    assert redrive(shop)["redriven"] == 1
    said = redrive(shop, "--restart")
    assert (said["read"], said["redriven"]) == (13, 13)
    assert len(embedded.read_all(ENTRY)) == 26


def test_conditions_have_progress_of_their_own_and_nothing_goes_back_twice(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    first = redrive(shop, "--where", "reason == 'EXPIRED'")
    assert (first["redriven"], first["not_matching"]) == (4, 8)
    rest = redrive(shop)
    assert (rest["read"], rest["redriven"], rest["resolved_before"]) == (12, 8, 4)
    assert first["progress_group"] != rest["progress_group"]
    assert len(values(embedded)) == len(set(values(embedded))) == 12


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("class == 'shop.InvalidOrder'", 12),
        ("fingerprint in ['f1', 'f2']", 8),
        ("version == '7' and not reason == 'EXPIRED'", 8),
        ("time >= '2023-11-14T22:13:20.010'", 2),
        ("time > ago(1h)", 0),
        ("key ~ 'key 1*'", 3),
        ("header('user') == 'x' or key == 'key 5'", 1),
    ],
)
def test_conditions_are_about_what_headers_and_key_say(
    shop: Commands, condition: str, count: int
) -> None:
    assert redrive(shop, "--dry-run", "--where", condition)["redriven"] == count


def test_a_dry_run_writes_nothing_and_makes_no_topics(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    embedded.create_topic("orders", PARTITIONS)
    embedded.create_topic(DEAD, PARTITIONS)
    embedded.create_topic(ENTRY, PARTITIONS)
    embedded.create_topic(STATE, 1)
    embedded.fill(DEAD, letters(range(5)))
    configure(commands, embedded)
    assert redrive(commands, "--dry-run")["redriven"] == 5
    assert redrive(commands, "--dry-run")["redriven"] == 5
    assert not embedded.read_all(ENTRY)
    assert not embedded.read_all(STATE)


def test_the_guard_is_counted_and_said(shop: Commands, embedded: EmbeddedBroker) -> None:
    (record,) = letters([30])
    for redrives in (b"1", b"2", b"3"):
        embedded.produce(
            DEAD, record.value, key=record.key, headers=[*record.headers, ("wc-redrives", redrives)]
        )
    ended = shop.run("dlq", "redrive", "--max-redrives", "2")
    assert ended.code == 0
    assert re.search(r"\b13 .*\b2 left: .*\b2 times\b", ended.out)
    assert redrive(shop, "--max-redrives", "3")["redriven"] == 1, "one more may go now"


def test_a_value_that_is_gone_is_an_error_and_the_others_go_back(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    reference = [("wc-format", b"1"), ("wc-value-ref", b"orders/1/7 sha256:abcd")]
    embedded.produce(DEAD, None, key=b"large", headers=reference, partition=0)
    ended = shop.run("dlq", "redrive")
    assert ended.code == 1
    assert re.search(r"\b12 .*\b1 left: .*\bvalues\b", ended.out)
    assert " orders/1/7 " in ended.out
    resolved = {message.key() for message in embedded.read_all(STATE)}
    assert resolved == {b"shop.orders.dlq/0/0-5", b"shop.orders.dlq/1/0-5"}, "all but 0/6"
    assert "--restart" in ended.err


def test_what_was_left_goes_back_alone_when_it_is_chosen_and_the_cause_is_mended(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    value = sha256(b"large").hexdigest().encode()
    headers = [
        ("wc-format", b"1"),
        ("wc-id", b"orders/1/0"),
        ("wc-value-ref", b"orders/1/0 sha256:" + value),
    ]
    embedded.produce(DEAD, None, key=b"large", headers=headers, partition=0)
    chosen = ("--where", "id == 'orders/1/0'", "--restart")
    assert redrive(shop, code=1)["unavailable"] == 1
    assert redrive(shop, *chosen, code=1)["unavailable"] == 1
    embedded.produce("orders", b"large", key=b"large", partition=1)
    assert redrive(shop, *chosen)["redriven"] == 1
    assert values(embedded).count(b"large") == 1
    assert len(values(embedded)) == 13


def test_one_worker_or_one_topic_can_be_chosen(shop: Commands) -> None:
    assert redrive(shop, "--worker", "charge", "--topic", "orders", "--dry-run")["read"] == 12
    assert redrive(shop, "--topic", DEAD, "--dry-run")["read"] == 12


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--worker", "ship"], "--worker ship: "),
        (["--topic", "parcels"], "--topic parcels: "),
        (["--where", "reason = 'FATAL'"], "'--where'"),
        (["--where", "colour == 'red'"], "'colour'"),
        (["--rate", "0"], "'--rate'"),
        (["--max-redrives", "0"], "'--max-redrives'"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
        (["--to-source"], " orders is compacted"),
    ],
)
def test_a_mistake_is_exit_2_and_says_what_is_wrong(
    shop: Commands, embedded: EmbeddedBroker, options: Sequence[str], said: str
) -> None:
    ended = shop.run("dlq", "redrive", *options)
    assert ended.code == 2, ended.said
    assert said in ended.err
    assert not embedded.read_all(ENTRY)


def test_a_broker_that_does_not_answer_is_waited_for_as_long_as_was_said(
    commands: Commands,
) -> None:
    workers = {"charge": {"group": "shop", "topics": ["orders"]}}
    commands.configure({"kafka": {"bootstrap.servers": "127.0.0.1:1"}, "workers": workers})
    ended = commands.run("dlq", "redrive", "--start-timeout", "1s")
    assert ended.code == 1
    assert re.search(r"127\.0\.0\.1:1 .*\b1 s\b", ended.err)
    ended = commands.run("dlq", "redrive", "--start-timeout", "1")
    assert ended.code == 2
    assert "1ms or 1s" in ended.err


def test_a_worker_without_dead_letters_has_nothing_to_put_back(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    embedded.create_topic("orders", 1)
    configure(commands, embedded, topics=["orders"], group="others")
    ended = commands.run("dlq", "redrive")
    assert ended.code == 0, ended.err


def test_decorators_may_say_topic_and_group(shop: Commands, embedded: EmbeddedBroker) -> None:
    shop.application(
        "from window_consumer import App\n"
        "app = App('shop')\n"
        "@app.handler('orders', group='shop')\n"
        "def charge(order): ...\n"
    )
    shop.configure({"kafka": kafka_of(embedded), "workers": {"charge": {}}})
    ended = shop.run("dlq", "redrive")
    assert ended.code == 2
    assert "--app MODULE:APP" in ended.err
    assert redrive(shop, "--app", "shop:app")["redriven"] == 12


def test_topics_that_only_a_decorator_knows_are_found_by_their_dead_letters(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    shop.configure({"kafka": kafka_of(embedded), "workers": {"charge": {"group": "shop"}}})
    assert redrive(shop, "--topic", "orders")["redriven"] == 12


def test_list_tells_what_went_back_from_what_is_open(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    redrive(shop, "--where", "reason == 'EXPIRED'")
    ended = shop.run("dlq", "list", "--json")
    assert ended.code == 0, ended.err
    said = ended.json["topics"][DEAD]
    assert (said["total"], said["open"], said["resolved"]) == (12, 8, 4)
    assert said["reasons"] == {"FATAL": 8}
    redrive(shop)
    (line,) = (each for each in shop.run("dlq", "list").out.splitlines() if f"{DEAD} (" in each)
    assert re.findall(r"\d+", line.partition("): ")[2]) == ["12", "0", "12"]
    embedded.fill(DEAD, letters([20]))
    assert shop.run("dlq", "list", "--json").json["topics"][DEAD]["open"] == 1


def test_a_run_that_is_asked_to_stop_says_that_it_is_not_complete(shop: Commands) -> None:
    command = shop.start("dlq", "redrive", "--rate", "1")
    command.wait_for("reads", timeout_s=30)
    ended = command.stop()
    assert ended.code == 130
    assert "resumes" in ended.err
    assert redrive(shop)["redriven"] >= 8


def test_what_is_not_acked_is_not_passed_over(
    shop: Commands, embedded: EmbeddedBroker, golden: Golden
) -> None:
    shop.configure(
        {
            "kafka": {**kafka_of(embedded), "producer": {"message.timeout.ms": 1_000}},
            "workers": {"charge": {"topics": ["orders"], "group": "shop"}},
        }
    )
    refusals = [ErrorCode.NOT_ENOUGH_REPLICAS] * 50
    embedded.push_request_errors(ApiKey.PRODUCE, *refusals)
    ended = shop.run("dlq", "redrive", "--json")
    assert ended.code == 1
    (error,) = (each for each in ended.err.splitlines() if each.startswith("error: "))
    golden(error.partition(": Local")[0])
    assert json.loads(ended.out)["redrives"][0]["redriven"] == 0
    embedded.clear_request_errors(ApiKey.PRODUCE)
    redrive(shop)
    assert set(values(embedded)) == {b"value %d" % number for number in range(12)}


def test_what_is_put_back_is_counted_by_an_audit(shop: Commands, embedded: EmbeddedBroker) -> None:
    embedded.create_topic("wc.audit", 1)
    charge = {"topics": ["orders"], "group": "shop"}
    audit = {"enabled": True, "directory": "audit", "ids": True}
    kafka = kafka_of(embedded)
    shop.configure({"kafka": kafka, "workers": {"charge": charge}, "audit": audit})
    redrive(shop)
    counts = [
        count
        for message in embedded.read_all("wc.audit")
        for count in decode(message.value() or b"")
        if count.count
    ]
    assert {(count.tier, count.topic, count.group) for count in counts} == {
        (CountTier.REDRIVEN, ENTRY, "shop")
    }
    by_partition = {count.partition: 0 for count in counts}
    for count in counts:
        by_partition[count.partition] += count.count
    assert by_partition == {0: 6, 1: 6}
    assert not list((shop.directory / "audit").iterdir())
