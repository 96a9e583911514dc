from __future__ import annotations

import pytest

from window_consumer.model.field_mask import FieldMask
from window_consumer.model.record_contents import (
    NOT_SHOWN,
    TOO_LARGE,
    WHOLE,
    content_of,
    key_text,
    pretty,
)
from window_consumer.model.redaction import MASKED


@pytest.mark.parametrize("name", ["iban", "IBAN", "pay.iban", "order.PAY.iban", "p*y.ib*", "*"])
def test_a_field_is_hidden_by_its_name_or_by_those_of_the_fields_that_it_is_in(name: str) -> None:
    mask = FieldMask([name])
    shown = mask.json({"order": {"pay": [{"iban": "DE4711"}]}})
    assert "DE4711" not in str(shown)


@pytest.mark.parametrize("name", ["ban", "iba", "pay", "buy.iban", "iban.pay", "a.order.pay.iban"])
def test_other_fields_are_left_as_they_are(name: str) -> None:
    value = {"order": {"buyer": {"iban": "DE4711"}}}
    assert FieldMask([name]).json(value) == value


def test_a_field_whose_own_name_has_a_dot_is_found() -> None:
    assert FieldMask(["pay.iban"]).json({"pay.iban": 5}) == {"pay.iban": MASKED}


def test_what_is_hidden_is_hidden_wherever_else_it_is_reported() -> None:
    mask = FieldMask(["iban", "x-*"])
    mask.json({"iban": {"no": "DE4711", "of": [True, None, "x"]}})
    mask.header("X-Auth", "sesame")
    assert mask.text("DE4711, sesame, x, True") == "***, ***, ***, True"


@pytest.mark.parametrize(
    ("value", "reported", "shown"),
    [
        ("123", "card 4711, cvv 123: refused", "card 4711, cvv ***: refused"),
        (123, "KeyError: 123", "KeyError: ***"),
        ("123", "cvv123 or cvv=123.", "cvv*** or cvv=***."),
        ("123", "no 1234 and no 0123", "no 1234 and no 0123"),
        ("DE", "country DE of INDEED", "country *** of INDEED"),
        (7, '  File "shop.py", line 7, in charge\nKeyError: 7', None),
        ("", "nothing", "nothing"),
    ],
)
def test_a_short_text_is_hidden_where_it_is_a_word_or_number_of_its_own(
    value: object, reported: str, shown: str | None
) -> None:
    mask = FieldMask(["cvv"])
    mask.json({"cvv": value})
    expected = '  File "shop.py", line 7, in charge\nKeyError: ***' if shown is None else shown
    assert mask.text(reported) == mask.error_text(reported) == expected


def test_a_short_number_of_a_part_without_fields_is_hidden_from_errors() -> None:
    mask = FieldMask(["cvv"])
    mask.close(b"4711;123;")
    assert mask.error_text("cvv 123 of 12 at 4711") == "cvv *** of 12 at ***"


def test_a_name_that_is_too_long_to_be_compared_is_hidden() -> None:
    mask = FieldMask(["a*b*c*d.e"])
    name = "ab" * 50_000
    assert mask.json({name: "DE4711"}) == {name: MASKED}


def test_headers_are_hidden_as_a_whole_but_for_those_that_say_how_it_failed() -> None:
    mask = FieldMask([], {"headers"})
    assert mask.header("tenant", "europe") == MASKED
    assert mask.header("wc-tags", "europe") == MASKED
    assert mask.header("wc-reason", "FATAL") == "FATAL"
    assert mask.header("tenant", None) is None
    assert mask.text("in europe") == "in europe"


@pytest.mark.parametrize(
    ("data", "form", "why"),
    [
        (b'{"iban": 1}', "json", None),
        (b'{"iban": 1', "hidden", NOT_SHOWN),
        (b"\xff", "hidden", NOT_SHOWN),
        (b'{"iban": "' + b"1" * 100 + b'"}', "hidden", TOO_LARGE),
        (b"\xff" * 101, "hidden", TOO_LARGE),
    ],
)
def test_a_value_is_shown_only_where_what_is_to_be_hidden_can_be_found(
    data: bytes, form: str, why: str | None
) -> None:
    reported = content_of(data, "value", FieldMask(["iban"]), most_json=100)
    assert reported is not None
    assert (reported["bytes"], reported["form"], reported.get("why")) == (len(data), form, why)


@pytest.mark.parametrize(
    ("data", "form"), [(b"[" * 101, "text"), (b"\xff" * 101, "binary"), (b"[1]", "json")]
)
def test_where_nothing_is_to_be_hidden_large_values_are_not_read_as_json(
    data: bytes, form: str
) -> None:
    reported = content_of(data, "value", FieldMask([]), most_json=100)
    assert reported is not None
    assert reported["form"] == form


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_number_that_json_lacks_is_shown_as_a_text(number: str) -> None:
    reported = content_of(b'{"amount": %s}' % number.encode(), "value", FieldMask([]))
    assert reported is not None
    assert reported["json"] == {"amount": number}


def test_a_part_that_is_hidden_as_a_whole_tells_its_size_and_nothing_else() -> None:
    reported = content_of(b'{"name": "anna"}', "value", FieldMask([], {"value"}))
    assert reported == {"bytes": 16, "form": "hidden", "why": WHOLE}


@pytest.mark.parametrize(
    ("key", "mask", "shown"),
    [
        (None, FieldMask([]), None),
        (b'{"a":  1}', FieldMask([]), '{"a":  1}'),
        (b'{"iban": 1, "a": 2}', FieldMask(["iban"]), '{"iban": "***", "a": 2}'),
        (b"\xff", FieldMask(["iban"]), "\\xff"),
        (b"anna", FieldMask([], {"key"}), MASKED),
        (b"1" * 101, FieldMask(["iban"]), MASKED),
    ],
)
def test_a_key_is_one_line(key: bytes | None, mask: FieldMask, shown: str | None) -> None:
    assert key_text(key, mask, 100) == shown


def test_json_that_is_nested_deeply_is_not_written_with_all_its_indents() -> None:
    value: list[object] = [1] * 10_000
    for _ in range(300):
        value = [value]
    assert len(pretty(value, 1000)) < 3000
    assert pretty({"a": [1, "é"]}, 1000) == '{\n  "a": [\n    1,\n    "é"\n  ]\n}'
