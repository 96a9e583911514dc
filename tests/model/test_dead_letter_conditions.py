from __future__ import annotations

import pytest

from tests.engine.test_copies import a_failed, copied
from tests.golden_texts import Golden
from tests.model.test_dead_letter import SHARE_GROUP, SPRING, Headers, read
from window_consumer.dlq.conditions import FIELDS, DeadLetterLookup, holds, parse_where
from window_consumer.model.conditions.expressions import ExpressionError, FieldKind

OURS: Headers = [("tenant", b"eu"), *copied(a_failed()).headers, ("tenant", b"us")]
FAILED_AT = 1_700_000_101_500


@pytest.mark.parametrize(
    "condition",
    [
        "reason == 'RETRIES_EXHAUSTED' and class == 'ValueError'",
        "message contains 'brok'",
        "fingerprint == 'f' and version startswith '1.2'",
        "key == 'k' and id == 'orders/0/7'",
        "header('tenant') == 'us'",
        "header('nothing') == null and level == null",
        "time > '2023-11-14' and time < '2023-11-16'",
        "time > ago(2h) and not time > ago(30m)",
        "topic == 'orders' and partition == 0 and offset >= 7 and attempts == 3 and redrives == 0",
        "group == 'shop-charge' and handler == 'charge' and written_by == 'window-consumer'",
    ],
)
def test_a_condition_may_speak_of_all_that_a_dead_letter_tells(condition: str) -> None:
    letter = read(OURS)
    an_hour_later = FAILED_AT + 3_600_000
    assert holds(parse_where(condition), letter, an_hour_later)
    assert not holds(parse_where(f"not ({condition})"), letter, an_hour_later)


def test_every_field_can_be_looked_up_whoever_wrote_the_dead_letter() -> None:
    for headers in (OURS, SPRING, SHARE_GROUP, None):
        lookup = DeadLetterLookup(read(headers, key=None), 0)
        for name, kind in FIELDS.items():
            value = lookup.field(name)
            assert value is None or isinstance(value, str if kind is FieldKind.TEXT else int), name


def test_without_a_condition_all_hold() -> None:
    assert holds(None, read(None), 0)


def test_a_misspelt_field_is_refused_with_what_was_probably_meant() -> None:
    with pytest.raises(ExpressionError, match="reason"):
        parse_where("raeson == 'FATAL'")


@pytest.mark.parametrize(
    "condition",
    [
        "reason == 'DECOD'",
        "'DECOD' != reason",
        "topic == 'orders' and not (reason in ['FATAL', 'DECOD'] or key == 'x')",
        "header('wc-reason') == 'DECOD'",
    ],
)
def test_a_reason_that_does_not_exist_is_an_error_that_says_what_was_meant(
    condition: str, golden: Golden
) -> None:
    with golden.raises(ExpressionError):
        parse_where(condition)


def test_a_reason_that_is_like_no_other_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ExpressionError, match=r"known are RETRIES_EXHAUSTED, .*, MANUAL"):
        parse_where("reason == 'zzz'")


@pytest.mark.parametrize(
    ("condition", "reported"),
    [
        ("reason == 'fatal'", r"known are RETRIES_EXHAUSTED, .*, MANUAL; did you mean FATAL\?"),
        ("reason startswith 'RETRY'", "'RETRY' is not a reason"),
        ("not reason contains 'fatal'", r"did you mean FATAL\?"),
        ("reason matches 'CRASH_*'", "'CRASH_\\*' is not a reason"),
        ("reason endswith 'EXPIRE'", r"did you mean EXPIRED\?"),
        ("header('wc-reason') in ['FATAL', 'STALED']", r"did you mean STALLED\?"),
        (
            "written_by == 'sprig'",
            r"'sprig' is not a writer .* kpipe, unknown; did you mean spring\?",
        ),
    ],
)
def test_a_word_that_no_dead_letter_has_is_an_error(condition: str, reported: str) -> None:
    with pytest.raises(ExpressionError, match=reported):
        parse_where(condition)


@pytest.mark.parametrize(
    "condition",
    ["reason matches 'RETR*'", "reason endswith 'ED'", "reason in [null, 'FATAL']", "reason == id"],
)
def test_conditions_that_some_reason_fulfils_are_taken(condition: str) -> None:
    parse_where(condition)


def test_what_looks_into_a_reason_may_name_a_part_of_it() -> None:
    parse_where("reason startswith 'RETR' and class == 'DECOD' and reason != null")
