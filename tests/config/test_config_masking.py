"""What must not be told of records: which rules count for which topics."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from window_consumer.config import Loaded, MaskRules
from window_consumer.model.mask import MASKED

WORKER = "workers: {a: {topics: [t], group: g}}\n"
RULES = """\
mask:
  - {topics: [cards-*, Pay], fields: [number], whole: [key]}
  - {fields: [iban]}
dlq: {mask: [x-auth-*]}
"""


def rules(loaded: Callable[..., Loaded]) -> MaskRules:
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
    loaded: Callable[..., Loaded], topics: list[str | None], names: list[str]
) -> None:
    assert hidden(rules(loaded), *topics) == names


def test_parts_are_hidden_as_a_whole_where_a_rule_says_so(loaded: Callable[..., Loaded]) -> None:
    found = rules(loaded)
    assert found.of(["cards-1"]).hides("key")
    assert not found.of(["cards-1"]).hides("value")
    assert not found.of(["orders"]).hides("key")


def test_keys_in_the_log_are_as_they_are_unless_a_rule_hides_them(
    loaded: Callable[..., Loaded],
) -> None:
    found = rules(loaded)
    assert found.told_key(["cards-1"], b"anna") == MASKED
    assert found.told_key(["g.cards-1.retry.1s", None], b"anna") == MASKED
    assert found.told_key(["orders"], b'{"iban": 1}') == '{"iban": "***"}'
    assert found.told_key(["orders"], None) is None
    assert MaskRules().told_key(["orders"], b"\xff") == b"\xff"


def test_nothing_is_hidden_where_nothing_is_said(loaded: Callable[..., Loaded]) -> None:
    mask = loaded(WORKER).config.mask_rules.of([None])
    assert not mask.hides_fields
    assert mask.json({"iban": 1}) == {"iban": 1}


@pytest.mark.parametrize(
    ("rule", "where", "why"),
    [
        ("{topics: [t]}", "mask[0]", "hides nothing: give fields: [...], or whole: [value]"),
        ("{fields: []}", "mask[0]", "hides nothing"),
        ("{feilds: [a]}", "mask[0].feilds", "did you mean fields?"),
        ("{fields: [a], topics: ['']}", "mask[0].topics[0]", "has characters that no topic has"),
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


def test_what_is_no_list_of_rules_is_refused(refused: Callable[..., str]) -> None:
    message = refused(f"{WORKER}mask: {{fields: [iban]}}\n")
    assert "mask: a mapping is not a list of rules, such as [{topics: [cards]" in message
