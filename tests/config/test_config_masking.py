"""What must not be told of records: which rules count for which topics."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.support import Note
from tests.golden_texts import Golden
from window_consumer.config import LoadedConfig, MaskRule, MaskRules
from window_consumer.model.redaction import MASKED

WORKER = "workers: {a: {topics: [t], group: g}}\n"
RULES = """\
mask:
  - {topics: [cards-*, Pay], fields: [number], whole: [key]}
  - {fields: [iban]}
dlq: {mask: [x-auth-*]}
"""


def rules(loaded: Callable[..., LoadedConfig]) -> MaskRules:
    return loaded(WORKER + RULES).config.mask_rules


def hidden(rules: MaskRules, *topics: str | None) -> list[str]:
    shown = rules.of(topics).json(dict.fromkeys(["number", "iban", "X-Auth-Token", "name"], "text"))
    return [name for name, text in shown.items() if text == MASKED]


@pytest.mark.parametrize(
    ("topics", "names"),
    [
        (["orders"], ["iban", "X-Auth-Token"]),
        (["cards-eu"], ["number", "iban", "X-Auth-Token"]),
        (["shop.cards-eu.retry.10s", "cards-eu"], ["number", "iban", "X-Auth-Token"]),
        (["Pay"], ["number", "iban", "X-Auth-Token"]),
        (["pay"], ["iban", "X-Auth-Token"]),
        (["old-cards-eu"], ["iban", "X-Auth-Token"]),
        (["somewhere", None], ["number", "iban", "X-Auth-Token"]),
    ],
)
def test_a_rule_counts_for_its_topics_and_where_none_is_named_for_all(
    loaded: Callable[..., LoadedConfig], topics: list[str | None], names: list[str]
) -> None:
    assert hidden(rules(loaded), *topics) == names


def test_parts_are_hidden_as_a_whole_where_a_rule_says_so(
    loaded: Callable[..., LoadedConfig],
) -> None:
    found = rules(loaded)
    assert found.of(["cards-1"]).hides("key")
    assert not found.of(["cards-1"]).hides("value")
    assert not found.of(["orders"]).hides("key")


def test_keys_in_the_log_are_as_they_are_unless_a_rule_hides_them(
    loaded: Callable[..., LoadedConfig],
) -> None:
    found = rules(loaded)
    assert found.loggable_key(["cards-1"], b"anna") == MASKED
    assert found.loggable_key(["g.cards-1.retry.1s", None], b"anna") == MASKED
    assert found.loggable_key(["orders"], b'{"iban": 1}') == '{"iban": "***"}'
    assert found.loggable_key(["orders"], None) is None
    assert MaskRules().loggable_key(["orders"], b"\xff") == b"\xff"


def test_nothing_is_hidden_where_nothing_is_said(loaded: Callable[..., LoadedConfig]) -> None:
    mask = loaded(WORKER).config.mask_rules.of([None])
    assert not mask.hides_fields
    assert mask.json({"iban": 1}) == {"iban": 1}


@pytest.mark.parametrize(
    ("rule", "where", "why"),
    [
        ("{topics: [t]}", "mask[0]", "hides nothing: write fields: [...], or whole: [value]"),
        ("{fields: []}", "mask[0]", "hides nothing"),
        ("{feilds: [a]}", "mask[0].feilds", "did you mean fields?"),
        ("{fields: [a], topics: ['']}", "mask[0].topics[0]", "is empty or has characters"),
        ("{whole: [values]}", "mask[0].whole[0]", "did you mean value?"),
        ("{fields: ['  ']}", "mask[0].fields[0]", "is empty"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(
    refused: Callable[..., str], rule: str, where: str, why: str
) -> None:
    message = refused(f"{WORKER}mask: [{rule}]\n")
    assert f"{where}: " in message
    assert why in message


def test_what_is_no_list_of_rules_is_refused(refused: Callable[..., str], golden: Golden) -> None:
    message = refused(f"{WORKER}mask: {{fields: [iban]}}\n")
    golden(message)


def record(value: bytes, key: bytes | None = None, **fields: Any) -> Note:
    return Note(0, key, value=value, **fields)


CARD = b'{"card": "4975123412341234", "iban": "DE12 3456 7890", "note": "for anna"}'


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("'4975123412341234'", "'***'"),
        ("'4975'", "'***'"),
        ("iban DE12 3456 7890 of 7", "iban *** of 7"),
        ("the check of 7890 for anna", "the check of *** for anna"),
        ("no account", "no account"),
    ],
)
def test_an_exception_quotes_nothing_of_a_hidden_field(text: str, reported: str) -> None:
    rules = MaskRules((MaskRule(topics=("orders",), fields=("card", "iban")),))
    assert rules.error_text(text, [record(CARD)]) == reported
    assert rules.error_text(text, [record(CARD, topic="others")]) == text
    copy = record(CARD, topic="shop.orders.retry.1s", headers=[("wc-orig-topic", b"orders")])
    assert rules.error_text(text, [copy]) == reported
    assert MaskRules().error_text(text, [record(CARD)]) == text


def test_what_is_no_json_or_hidden_as_a_whole_is_not_quoted_in_words() -> None:
    fields = MaskRules((MaskRule(fields=("iban",)),))
    assert fields.error_text("no DE4711 here", [record(b"name;DE4711;7")]) == "no *** here"
    assert fields.error_text("no DE4711 here", [record(b"\0\x0cDE4711")]) == "no *** here"
    whole = MaskRules((MaskRule(whole=("value", "key", "headers")),))
    hidden = record(CARD, b"customer-17", headers=[("tenant", b"europe")])
    text = "KeyError: 4975123412341234 of customer in europe, attempt"
    assert whole.error_text(text, [hidden]) == "KeyError: *** of *** in ***, attempt"


def test_an_exception_of_a_batch_quotes_none_of_its_records() -> None:
    rules = MaskRules((MaskRule(fields=("iban",)),))
    batch = [record(b'{"iban": "DE%04d"}' % number) for number in range(50)]
    assert rules.error_text("DE0000 and DE0049", batch) == "*** and ***"


def test_where_too_much_is_hidden_the_text_of_an_exception_is_withheld() -> None:
    rules = MaskRules((MaskRule(fields=("iban",)),))
    large = record(b'{"iban": "DE4711"}' + b" " * 300_000)
    assert "DE4711" not in rules.error_text("no DE4711", [large])
    many = record(json.dumps({"iban": [f"{each:05x}" for each in range(29_000)]}).encode())
    assert "00017" not in rules.error_text("no 00017", [many])
    assert "00017" not in rules.error_text("no 00017", [record(b"x" * 200_000 + b"00017")] * 6)
