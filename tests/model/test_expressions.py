from __future__ import annotations

import time

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.golden_texts import Golden
from window_consumer.model.conditions.expressions import (
    MAX_DEPTH,
    Expression,
    ExpressionError,
    FieldKind,
    parse,
)

FIELDS = {
    "key": FieldKind.TEXT,
    "reason": FieldKind.TEXT,
    "attempts": FieldKind.NUMBER,
    "time": FieldKind.TIME,
}
NOON_MS = 1_795_262_400_000  # 2026-11-21T12:00 in UTC
HOUR_MS = 3_600_000


@attrs.frozen
class Said:
    """What a record says, for expressions."""

    fields: dict[str, str | int | float | None] = attrs.field(factory=dict)
    headers: dict[str, str] = attrs.field(factory=dict)

    def field(self, name: str) -> str | int | float | None:
        return self.fields.get(name)

    def header(self, name: str) -> str | None:
        return self.headers.get(name)

    def now_ms(self) -> int:
        return NOON_MS


def holds(text: str, headers: dict[str, str] | None = None, **fields: str | float | None) -> bool:
    return parse(text, FIELDS).evaluate(Said(dict(fields), headers or {}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("key == 'a'", True),
        ("key != 'a'", False),
        ('key == "b"', False),
        ("'a' == key", True),
        ("attempts == 3", True),
        ("attempts == 3.0", True),
        ("attempts > -1.5 and attempts <= 3", True),
        ("attempts < 3 or attempts >= 4", False),
        ("key < 'b' and key > 'A'", True),
        ("key in ['b', 'a']", True),
        ("key in ['b']", False),
        ("key not in ['b']", True),
        ("attempts in [1, 3]", True),
        ("not key == 'b'", True),
        ("not not key == 'a'", True),
        ("header('type') == 'paid'", True),
        ("header('type') contains 'ai' and header('type') startswith 'p'", True),
        ("header('type') endswith 'ai'", False),
        ("header('type') == key", False),
    ],
)
def test_an_expression_says_of_a_record_what_it_reads_like(text: str, *, expected: bool) -> None:
    assert holds(text, {"type": "paid"}, key="a", attempts=3) is expected


def test_and_binds_more_tightly_than_or_and_brackets_more_tightly_than_both() -> None:
    assert holds("key == 'a' or key == 'x' and attempts == 9", key="a", attempts=3)
    assert not holds("(key == 'a' or key == 'x') and attempts == 9", key="a", attempts=3)
    assert not holds("not key == 'x' and attempts == 9", key="a", attempts=3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("key == null", True),
        ("key != null", False),
        ("key in [null]", True),
        ("header('no') == null", True),
        ("key == 'a'", False),
        ("key != 'a'", True),
        ("key < 'a'", False),
        ("key >= 'a'", False),
        ("attempts > 0", False),
        ("attempts <= 0", False),
        ("time < ago(1h)", False),
        ("time > ago(1h)", False),
        ("key in ['a']", False),
        ("key contains ''", False),
        ("key matches '*'", False),
        ("key == reason", True),
        ("key < reason", False),
    ],
)
def test_what_is_missing_equals_only_null_and_has_no_order(text: str, *, expected: bool) -> None:
    assert holds(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("header('n') == 5", True),
        ("header('n') > 4.5", True),
        ("header('n') < '40'", False),
        ("header('n') in [4, 5]", True),
        ("header('n') == true", False),
        ("header('flag') == true", True),
        ("header('flag') == false", False),
        ("header('flag') == 1", False),
        ("header('flag') < 1", False),
        ("header('flag') >= 1", False),
        ("header('flag') != 1", True),
        ("header('n') == attempts", True),
        ("attempts == header('flag')", False),
        ("attempts < header('flag')", False),
        ("header('at') == time", True),
        ("time <= header('ms')", True),
        ("header('flag') < time", False),
    ],
)
def test_a_text_beside_another_type_counts_as_what_it_spells_or_is_not_compared(
    text: str, *, expected: bool
) -> None:
    headers = {"n": "5", "flag": "true", "at": "2026-11-21T12:00", "ms": str(NOON_MS)}
    assert holds(text, headers, attempts=5, time=NOON_MS) is expected


@pytest.mark.parametrize("text", ["nan", "inf", "1_000", "0x10", "٣", " 5", "1e3", "9" * 31, ""])
def test_a_text_that_is_no_plain_number_is_not_compared_with_one(text: str) -> None:
    for sign in ("==", "<", "<=", ">", ">="):
        assert not holds(f"header('n') {sign} 5", {"n": text})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("time == '2026-11-21T12:00'", True),
        ("time == '2026-11-21T13:00+01:00'", True),
        ("time > '2026-11-21'", True),
        ("time < '2026-11-21T12:00:00.001Z'", True),
        ("'2026-11-21T11:59' < time", True),
        ("time >= ago(0s)", True),
        ("time > ago(1ms)", True),
        ("time < ago(1ms)", False),
        ("time in ['2026-11-21T12:00']", True),
        (f"time == {NOON_MS}", True),
    ],
)
def test_a_time_is_compared_with_points_in_time_in_utc(text: str, *, expected: bool) -> None:
    assert holds(text, time=NOON_MS) is expected


def test_a_time_without_a_zone_is_one_of_utc_wherever_the_program_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert holds("time == '2026-11-21T12:00'", time=NOON_MS)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_ago_counts_back_from_now() -> None:
    assert holds("time < ago(1.5h)", time=NOON_MS - 2 * HOUR_MS)
    assert not holds("time < ago(1.5h)", time=NOON_MS - HOUR_MS)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("de-*", "de-42", True),
        ("de-*", "fr-42", False),
        ("*-42", "de-42", True),
        ("d*2", "de-42", True),
        ("a*a", "a", False),
        ("a*b*c", "a-b-b-c", True),
        ("a*b*c", "a-c-b", False),
        ("ab*bc", "abc", False),
        ("", "", True),
        ("*", "", True),
        ("de", "de-42", False),
        ("d.-*", "de-42", False),
    ],
)
def test_matches_knows_the_star_and_nothing_else(
    pattern: str, text: str, *, expected: bool
) -> None:
    assert holds(f"key matches '{pattern}'", key=text) is expected
    assert holds(f"key ~ '{pattern}'", key=text) is expected


@given(st.lists(st.text("ab*", max_size=6)).map("*".join), st.text("ab", max_size=12))
def test_a_form_matches_what_a_regular_expression_would(pattern: str, text: str) -> None:
    reachable = {0}
    for character in pattern:
        if character == "*":
            reachable = set(range(min(reachable), len(text) + 1)) if reachable else set()
        else:
            reachable = {n + 1 for n in reachable if text[n : n + 1] == character}
    assert holds(f"key matches '{pattern}'", key=text) == (len(text) in reachable)


def test_texts_may_hold_quotes_and_backslashes() -> None:
    assert holds(r"key == 'it\'s \\ \"'", key="it's \\ \"")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("reson == 'x'", r"there is no 'reson'; did you mean reason\?.*\(character 1 of"),
        ("key == paid", r"there is no 'paid'; texts need quotes.*\(character 8 of"),
        ("key = 'a'", r"'=' is not valid here; did you mean ==\?.*\(character 5 of"),
        ("key == 'a' & key == 'b'", r"did you mean and\?.*\(character 12 of"),
        ("key == 'a' adn key == 'b'", r"expected and, or or the end.*did you mean and\?"),
        ("key contans 'x'", r"did you mean contains\?.*\(character 5 of"),
        ("key contains 3", r"expected a text in quotes after contains, found '3'"),
        ("key", r"expected one of == .* after key, found the end"),
        ("", "expected a field, header.* or a value, found the end"),
        ("'a' == 'a'", "one side must be a field or header"),
        ("'a' contains 'a'", "expected one of == .* after a value"),
        ("(key == 'a'", r"expected and, or or \), found the end"),
        ("key == 'a')", r"expected and, or or the end, found '\)'"),
        ("key == 'abc", r"the text that begins here has no closing '.*\(character 8 of"),
        (r"key == 'a\n'", r"\\n is not an escape"),
        ("key in 'a'", "expected \\[ and a list of values, found 'a'"),
        ("key in []", "expected a field, header.* or a value"),
        ("key in ['a' 'b']", "expected , or \\]"),
        ("key in [reason]", "a list holds values only"),
        ("key not 'a'", "expected in, found 'a'"),
        ("attempts == 'x'", "attempts is a number, but 'x' is not"),
        ("attempts == true", "attempts is a number, but true is not"),
        ("attempts in [1, 'x']", "attempts is a number, but 'x' is not"),
        ("attempts > ago(2h)", "attempts is a number, ago.2h. is a time"),
        ("attempts contains '3'", "attempts is not a text"),
        ("key > null", "null is only compared with == and !="),
        ("key > true", "true is only compared with == and !="),
        ("time > '2026-13-01'", "'2026-13-01' is not a time such as '2026-11-21T10:00'"),
        ("time == true", "time is a time, but true is not"),
        ("time > 2h", r"write ago\(2h\)"),
        ("time > ago(2w)", "'2w' is neither a number nor a duration.*units are ms, s, m, h, d"),
        ("time > ago('2h')", "expected a duration such as 2h"),
        ("header(type) == 'x'", "expected a header's name in quotes, found 'type'"),
        ("header['type'] == 'x'", r"expected \( after header"),
        ("attempts == " + "9" * 31, "a number of 31 characters is too long; the limit is 30"),
        ("key == '" + "x" * 4000 + "'", "4009 characters are too many"),
    ],
)
def test_a_mistake_is_reported_with_its_place_and_what_was_expected(
    text: str, message: str
) -> None:
    with pytest.raises(ExpressionError, match=message):
        parse(text, FIELDS)


def test_an_error_says_where_it_is() -> None:
    with pytest.raises(ExpressionError) as raised:
        parse("key == 'a' and reson == 'b'", FIELDS)
    assert raised.value.position == 15


def test_depth_is_bounded(golden: Golden) -> None:
    deepest = "(" * MAX_DEPTH + "key == 'a'" + ")" * MAX_DEPTH
    assert parse(deepest, FIELDS) == parse("key == 'a'", FIELDS)
    for text in (f"({deepest})", "not " * (MAX_DEPTH + 1) + "key == 'a'"):
        with golden.raises(ExpressionError):
            parse(text, FIELDS)


PIECES = st.sampled_from(
    [
        *("and", "or", "not", "in", "(", ")", "[", "]", ",", "==", "!=", "<", "<=", ">", ">="),
        *("~", "matches", "startswith", "contains", "endswith", "header", "ago", "header('x')"),
        *("key", "reason", "attempts", "time", "true", "false", "null", "'a'", '"b"', "3", "-1.5"),
        *("2h", "1.5d", "'2026-11-21'", "ago(2h)", "key=='a'", "=", "&", "'", "\\"),
    ]
)
TEXTS = st.text("abé'\"\\* \n", max_size=5)


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


COMPARISONS = st.one_of(
    st.builds(
        "{} {} {}".format,
        st.sampled_from(["key", "header('x')"]),
        st.sampled_from(
            ["==", "!=", "<", "<=", ">", ">=", "~", "matches", "startswith", "endswith"]
        ),
        TEXTS.map(quoted),
    ),
    st.builds("attempts >= {}".format, st.integers(-(10**12), 10**12)),
    st.builds("attempts == {:.6f}".format, st.floats(-1e9, 1e9)),
    st.builds("key not in [{}, null, true]".format, TEXTS.map(quoted)),
    st.just("time < ago(1.5h)"),
    st.just("'2026-11-21T10:00+02:00' <= time"),
    st.just("header('x') == attempts"),
)
EXPRESSIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        inner.map("not ({})".format),
        inner.map("not {}".format),
        st.lists(inner, min_size=2, max_size=3).map(" and ".join),
        st.lists(inner, min_size=2, max_size=3).map(" or ".join),
        st.lists(inner.map("({})".format), min_size=2, max_size=3).map(" and ".join),
    ),
    max_leaves=8,
)


def parsed(text: str) -> Expression | None:
    try:
        return parse(text, FIELDS)
    except ExpressionError:
        return None


@given(st.one_of(st.text(), st.lists(PIECES, max_size=12).map(" ".join)))
@example("key == '\ud800'")
@example("attempts == 123456789012345678901234567.5")
@example("not " * 40 + "key not in ['a']")
@example("(" * 4000)
@example("not " * 1000)
@example("key == 'a' and " * 250 + "key == 'a'")
def test_no_text_raises_anything_but_an_expression_error(text: str) -> None:
    expression = parsed(text)
    if expression is not None:
        assert parse(str(expression), FIELDS) == expression


@given(EXPRESSIONS)
def test_what_is_printed_parses_to_its_equal(text: str) -> None:
    expression = parse(text, FIELDS)
    printed = str(expression)
    assert parse(printed, FIELDS) == expression
    assert str(parse(printed, FIELDS)) == printed


VALUES = st.one_of(st.none(), st.text(max_size=5), st.integers(), st.floats())


@given(EXPRESSIONS, VALUES, VALUES, VALUES, st.none() | st.text(max_size=5))
def test_evaluating_never_raises(
    text: str,
    key: str | float | None,
    attempts: str | float | None,
    time: str | float | None,
    header: str | None,
) -> None:
    headers = {} if header is None else {"x": header}
    assert holds(text, headers, key=key, attempts=attempts, time=time) in {True, False}
