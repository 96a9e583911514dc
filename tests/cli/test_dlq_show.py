"""``window-consumer dlq show``."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256

import pytest

from tests.cli.dead_letters import DLQ, SHOP, config_for, fill, letter
from tests.commands import DEADLINE_S, Commands, kafka_of
from tests.docs.pages import ROOT
from tests.model.test_dead_letter import SHARE_GROUP, SPRING
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> Commands:
    commands.configure(config_for(embedded.bootstrap))
    commands.application(SHOP)
    return commands


def test_all_that_a_dead_letter_tells_is_shown(shop: Commands, embedded: EmbeddedBroker) -> None:
    fill(embedded, letter(17, own=[("tenant", b"eu"), ("raw", b"\xff\x00"), ("none", None)]))
    ended = shop.run("dlq", "show", "orders/0/17")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0] == f"{DLQ}/0/0"
    fields = dict(line.strip().split(maxsplit=1) for line in lines[1:5])
    assert fields["record"].split()[::2] == ["orders/0/17,", "2023-11-14T22:13:20.000Z"]
    assert fields["reason"].startswith("RETRIES_EXHAUSTED, ")
    assert fields["reason"].endswith(" 3")
    assert fields["error"] == "ValueError: no amount"
    assert "  tenant: eu" in lines
    assert "  raw: 0xff00" in lines
    assert "  none: null" in lines
    assert 'value (13 bytes, json)\n  {\n    "amount": 0\n  }' in ended.out
    assert "stack\n  ValueError:\n    in charge" in ended.out


def test_the_same_as_json(shop: Commands, embedded: EmbeddedBroker) -> None:
    fill(embedded, letter(17, own=[("tenant", b"eu")]))
    shown = shop.run("dlq", "show", "orders/0/17", "--json").json
    assert (shown["dead_letter"], shown["id"]) == (f"{DLQ}/0/0", "orders/0/17")
    assert shown["value"] == {"bytes": 13, "form": "json", "json": {"amount": 0}}
    assert shown["key"] == {"bytes": 2, "form": "text", "text": "c1"}
    assert ["tenant", "eu"] in shown["headers"]
    assert (shown["error_stack"], shown["original_offset"]) == ("ValueError:\n  in charge\n", 17)


@pytest.mark.parametrize(
    ("value", "form", "reported"),
    [
        (b"plain words", "text", "plain words"),
        (b"\xde\xad\xbe\xef", "binary", "deadbeef"),
        (b"\xff" * 5000, "binary", " 904 "),
        (b"", "text", "(0 bytes, text)"),
        (b"[" * 100_000, "text", "[[["),
        ("grüße".encode(), "text", "grüße"),
        (b"\x1b[2Jcleared", "text", "\\x1b[2Jcleared"),
    ],
)
def test_values_of_any_form_are_shown(
    shop: Commands, embedded: EmbeddedBroker, value: bytes, form: str, reported: str
) -> None:
    fill(embedded, letter(1, value))
    assert shop.run("dlq", "show", "orders/0/1", "--json").json["value"]["form"] == form
    shown = shop.run("dlq", "show", "orders/0/1").out
    assert reported in shown
    assert "\x1b" not in shown


def test_a_tombstone_is_no_empty_value(shop: Commands, embedded: EmbeddedBroker) -> None:
    fill(embedded, letter(1, None, key=None))
    assert "value: null" in shop.run("dlq", "show", "orders/0/1").out


def test_a_dead_letter_is_found_by_where_it_stands_itself(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    fill(embedded, letter(1), NewRecord(b"{}", None, SPRING), letter(3))
    shown = shop.run("dlq", "show", f"{DLQ}/0/1", "--json").json
    assert (shown["written_by"], shown["id"]) == ("spring", "orders/3/5000000000")


def test_of_several_dead_letters_of_one_record_the_latest_is_shown(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    fill(embedded, letter(1, failed_at="2000"), letter(1, failed_at="1000"), letter(2))
    ended = shop.run("dlq", "show", "orders/0/1")
    assert ended.out.startswith(f"{DLQ}/0/0\n")
    assert f" {DLQ}/0/1" in ended.out
    assert f"{DLQ}/0/2" not in ended.out


@pytest.mark.parametrize("name", ["orders/0/9", f"{DLQ}/0/7", "no-such-order"])
def test_a_dead_letter_that_there_is_not_is_wrong_usage(
    shop: Commands, embedded: EmbeddedBroker, name: str
) -> None:
    fill(embedded, letter(1))
    ended = shop.run("dlq", "show", name)
    assert (ended.code, ended.out) == (2, "")
    assert name in ended.err
    assert DLQ in ended.err


def test_one_that_somebody_has_put_back_says_so(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    config = config_for(embedded.bootstrap)
    commands.configure({**config, "kafka": kafka_of(embedded)})
    embedded.create_topic("orders", 1)
    fill(embedded, letter(1), letter(2))
    assert commands.run("dlq", "redrive", "--where", "offset == 1").code == 0
    assert "resolved     redriven " in commands.run("dlq", "show", "orders/0/1").out
    shown = commands.run("dlq", "show", "orders/0/1", "--json").json
    assert shown["resolved"]["to"] == "shop-charge.orders.retry.now"
    assert commands.run("dlq", "show", "orders/0/2", "--json").json["resolved"] is None


# ---- masks


def masked(embedded: EmbeddedBroker, *names: str) -> dict[str, object]:
    return config_for(embedded.bootstrap, dlq={"mask": list(names)})


def test_fields_and_headers_that_the_configuration_names_are_hidden_wherever_they_are_reported(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    commands.configure(masked(embedded, "iban", "x-auth-*"))
    fill(
        embedded,
        letter(
            1,
            b'{"pay": [{"IBAN": "DE4711", "amount": 3}]}',
            own=[("X-Auth-Token", b"sesame"), ("tenant", b"eu")],
            error_message="no account DE4711",
            error_stack="ValueError: DE4711 sesame",
        ),
    )
    for arguments in ((), ("--json",)):
        ended = commands.run("dlq", "show", "orders/0/1", *arguments)
        assert ended.code == 0
        assert "DE4711" not in ended.said
        assert "sesame" not in ended.said
        assert "no account ***" in ended.out
        assert "eu" in ended.out
    assert "DE4711" in commands.run("dlq", "show", "orders/0/1", "--unmasked").out


def test_rules_count_for_the_topic_that_a_record_came_from(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    rules = [
        {"topics": ["order*"], "fields": ["pay.iban"], "whole": ["key"]},
        {"topics": ["bills"], "fields": ["amount"]},
    ]
    commands.configure(config_for(embedded.bootstrap, mask=rules))
    value = b'{"pay": {"iban": "DE4711"}, "amount": 3}'
    fill(embedded, letter(1, value, error_message="no DE4711"))
    shown = commands.run("dlq", "show", "orders/0/1", "--json").json
    assert shown["value"]["json"] == {"pay": {"iban": "***"}, "amount": 3}
    assert shown["key"].pop("why")
    assert shown["key"] == {"bytes": 2, "form": "hidden"}
    commands.configure(config_for(embedded.bootstrap, mask=[{**rules[0], "whole": ["value"]}]))
    assert "DE4711" not in commands.run("dlq", "show", "orders/0/1").out


def test_a_value_in_which_no_fields_can_be_found_is_not_shown_where_some_are_confidential(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    commands.configure(masked(embedded, "iban"))
    fill(embedded, letter(1, b'{"iban": "DE4711"'), letter(2, b"\xffDE4711"))
    for name in ("orders/0/1", "orders/0/2"):
        ended = commands.run("dlq", "show", name)
        assert "DE4711" not in ended.out
        assert b"DE4711".hex() not in ended.out
        assert "--unmasked" in ended.out


def test_secrets_of_the_configuration_are_hidden_always(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    config = config_for(embedded.bootstrap)
    config["kafka"]["sasl.password"] = "hunter2"
    commands.configure(config)
    fill(embedded, letter(1, error_message="login with hunter2 failed"))
    ended = commands.run("dlq", "show", "orders/0/1", "--unmasked")
    assert "hunter2" not in ended.said
    assert "login with *** failed" in ended.out


# ---- tests


NOT_HYPOTHESIS = ("-p", "no:hypothesispytest")
"""To import it takes a second."""


def run_pytest(shop: Commands) -> subprocess.CompletedProcess[str]:
    ours = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *NOT_HYPOTHESIS, "."],
        cwd=shop.directory,
        env={**ours, "PYTHONPATH": f"{shop.directory}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_a_dead_letter_becomes_a_test_that_fails_until_the_handler_is_mended(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    own = [("tenant", b"\xff\x00'\"\n"), ("none", None)]
    value = b'{"amount": 0, "note": "' + b"\\u00e9\\"[:-1] * 40 + b"'''\"}"
    fill(embedded, letter(17, value, own=own, error_class='x"""\n\\'))
    file = shop.directory / "test_dead.py"
    ended = shop.run(
        "dlq", "show", "orders/0/17", "--as-test", "--app", "shop:app", "-o", str(file)
    )
    assert (ended.code, ended.said) == (0, "")
    failed = run_pytest(shop)
    assert failed.returncode == 1
    assert "no amount: b'c1'" in failed.stdout
    check = (
        f"    assert order.value == {value!r}\n    assert order.headers == {own!r}\n"
        "    assert (order.topic, order.partition, order.offset) == ('orders', 0, 17)\n"
        "    assert order.timestamp == 1700000000000\n"
    )
    mended = SHOP.replace('    if order.json()["amount"] <= 0:\n', check + "    if False:\n")
    assert "if False" in mended
    shop.application(mended)
    passed = run_pytest(shop)
    assert passed.returncode == 0, passed.stdout
    again = shop.run(
        "dlq", "show", "orders/0/17", "--as-test", "--app", "shop:app", "-o", str(file)
    )
    assert again.code == 2
    assert str(file) in again.err


def test_a_value_that_was_too_large_is_fetched_for_a_test_or_missed(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    embedded.create_topic("orders", 1)
    embedded.produce("orders", b'{"amount": 99}')
    right = "orders/0/0 sha256:" + sha256(b'{"amount": 99}').hexdigest()
    wrong = f"orders/0/0 sha256:{sha256(b'other').hexdigest()}"
    fill(embedded, letter(0, None, value_ref=right), letter(1, None, value_ref=wrong))
    as_test = ("--as-test", "--app", "shop:app")
    assert '"amount": 99' in shop.run("dlq", "show", "orders/0/0", *as_test).out
    ended = shop.run("dlq", "show", "orders/0/1", *as_test)
    assert ended.code == 1
    assert "orders/0/0" in ended.err
    assert wrong in shop.run("dlq", "show", "orders/0/1").out


def test_a_record_that_a_share_group_did_not_copy_is_fetched_for_a_test_or_missed(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    embedded.create_topic("orders", 1)
    embedded.produce("orders", b'{"amount": 99}', key=b"c9", headers=[("tenant", b"eu")])

    def pointer(offset: bytes) -> NewRecord:
        changed = {"__dlq.errors.partition": b"0", "__dlq.errors.offset": offset}
        return NewRecord(None, None, [(name, changed.get(name, was)) for name, was in SHARE_GROUP])

    dead = "dlq.orders"
    fill(embedded, pointer(b"0"), pointer(b"7"), topic=dead)
    where = ("--topic", dead)
    as_test = ("--as-test", "--app", "shop:app", "--handler", "charge")
    written = shop.run("dlq", "show", f"{dead}/0/0", *where, *as_test)
    assert written.code == 0, written.err
    for part in ('"amount": 99', "key=b'c9'", "('tenant', b'eu')", "offset=0"):
        assert part in written.out
    gone = shop.run("dlq", "show", f"{dead}/0/1", *where, *as_test)
    assert gone.code == 1
    assert "(errors.deadletterqueue.copy.record.enable)" in gone.err
    assert "orders/0/7" in gone.err
    shown = shop.run("dlq", "show", f"{dead}/0/0", *where).out
    assert " orders/0/0" in shown


def test_which_handler_a_test_calls_can_be_chosen_and_has_to_be_there(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    more = "\n@app.handler('bills')\ndef bill(record: Record) -> None: ...\n"
    shop.application(SHOP + more)
    fill(embedded, letter(1, handler="former"), letter(2))
    as_test = ("--as-test", "--app", "shop:app")
    ended = shop.run("dlq", "show", "orders/0/1", *as_test)
    assert ended.code == 2
    assert "'former'" in ended.err
    assert "bill, charge" in ended.err
    assert (
        'handlers["bill"]'
        in shop.run("dlq", "show", "orders/0/1", *as_test, "--handler", "bill").out
    )
    assert 'handlers["charge"]' in shop.run("dlq", "show", "orders/0/2", *as_test).out
    ended = shop.run("dlq", "show", "orders/0/2", "--as-test")
    assert ended.code == 2
    assert "--app MODULE:APP" in ended.err
