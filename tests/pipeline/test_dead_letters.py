"""Dead letters of any origin become rows as the model reads them, without what is to be hidden."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from tests.model.test_dead_letter import CONNECT, KPIPE, SHARE_GROUP, SPRING, STREAMS
from tests.pipeline.dead_letters import NOW_MS, Letter, ours, records
from window_consumer.config.sections.mask import MaskRule, MaskRules
from window_consumer.dlq.dead_letter import DeadLetter, read_dead_letter
from window_consumer.dlq.spark import table as dead_letters
from window_consumer.dlq.spark.config import Reading
from window_consumer.dlq.spark.schema import DEAD_LETTERS
from window_consumer.dlq.stored_record import StoredMessage
from window_consumer.model.record import TopicPartition
from window_consumer.spark import tables

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

SAME = {
    *("id", "original_topic", "original_partition", "original_offset", "group", "handler"),
    *("app_version", "host", "reason", "error_class", "error_message", "error_stack"),
    *("fingerprint", "attempts", "level", "redrives", "value_ref", "written_by"),
}


def rows(spark: SparkSession, *letters: Letter, **reading: Any) -> list[Row]:
    judged = dead_letters.judge(records(spark, *letters))
    found = dead_letters.letters(tables.readable(judged), Reading(**reading))
    assert found.schema == DEAD_LETTERS
    ordered = found.orderBy("offset")
    return ordered.selectExpr("*", "unix_millis(failed_at) as failed_ms").collect()


def as_the_model_reads(letter: Letter, offset: int) -> DeadLetter:
    return read_dead_letter(
        StoredMessage(
            name=TopicPartition(letter.topic, letter.partition),
            at=offset,
            key_bytes=letter.key,
            value_bytes=letter.value,
            header_pairs=letter.headers or [],
            timestamp_ms=NOW_MS,
        )
    )


def test_dead_letters_are_those_that_the_model_reads(spark: SparkSession) -> None:
    """Ours and foreign ones, with odd headers and without any."""
    odd = [("wc-format", b"1"), ("wc-error-message", b"\xff\xfe"), ("wc-attempts", b"many")]
    letters = [
        Letter(headers=ours(0, host="pod-1", redrives="2")),
        *(Letter(headers=each) for each in (SPRING, CONNECT, STREAMS, SHARE_GROUP, KPIPE)),
        Letter(headers=odd, key=None, value=None),
        Letter(headers=None),
        Letter(headers=[("tenant", None), ("tenant", b"eu")], value=b"\xff" * 1_000_000),
    ]
    for offset, (row, letter) in enumerate(zip(rows(spark, *letters), letters, strict=True)):
        model = as_the_model_reads(letter, offset)
        reported = attrs.asdict(model)
        assert {name: row[name] for name in SAME} == {name: reported[name] for name in SAME}
        assert row["failed_ms"] == model.failed_at
        assert [(each["name"], each["value"]) for each in row["headers"]] == [
            (name, None if value is None else value.decode()) for name, value in model.own_headers
        ]
        assert row["value_bytes"] == (None if letter.value is None else len(letter.value))
        assert row["value"] is None


def test_times_that_nobody_believes_are_those_of_the_dead_letter(spark: SparkSession) -> None:
    odd = [str(NOW_MS + 3 * 86_400_000), "9" * 19, "12", "x"]
    found = rows(spark, *(Letter(headers=ours(1, failed_at=each)) for each in odd))
    assert [row["failed_ms"] for row in found] == [NOW_MS] * len(odd)
    (timeless,) = rows(spark, Letter(headers=None, time_type=-1))
    assert (timeless["failed_ms"], timeless["day"]) == (None, None)


def test_what_a_later_version_wrote_is_kept_apart(spark: SparkSession) -> None:
    later = Letter(headers=ours(1, format="2"), value=b"v")
    judged = dead_letters.judge(records(spark, later, Letter(headers=ours(2))))
    (kept,) = tables.quarantined(judged, "dlq").collect()
    assert (kept["reason"], bytes(kept["value"])) == ("format 2", b"v")
    assert tables.readable(judged).count() == 1


def masked_by(*rules: MaskRule) -> Any:
    return MaskRules(rules).of


def test_what_is_masked_comes_into_no_row(spark: SparkSession) -> None:
    """Neither the field and header themselves, nor what quotes them."""
    rule = MaskRule(topics=("orders",), fields=("iban", "x-auth"))
    iban = "DE89370400440532013000"
    letter = Letter(
        headers=[
            ("x-auth", b"Bearer abc"),
            ("note", b"Bearer abc!"),
            *ours(1, error_message=f"no account {iban}", error_stack=f"at {iban} of Bearer abc"),
        ],
        key=f'{{"iban": "{iban}"}}'.encode(),
        value=f'{{"customer": {{"iban": "{iban}"}}, "amount": 3}}'.encode(),
    )
    elsewhere = attrs.evolve(letter, headers=[*(letter.headers or ()), ("wc-orig-topic", b"bills")])
    large = attrs.evolve(letter, value=b"x" * 300_000)
    found = rows(spark, letter, elsewhere, large, mask_of=masked_by(rule), values=True)
    for row in (found[0], found[2]):
        assert iban not in str(row)
        assert "Bearer" not in str(row)
    assert found[0]["error_message"] == "no account ***"
    assert found[0]["value"] == '{"customer": {"iban": "***"}, "amount": 3}'
    assert found[0]["key"] == '{"iban": "***"}'
    assert [each["value"] for each in found[0]["headers"]] == ["***", "***!"]
    assert [each["value"] for each in found[2]["headers"]] == ["***", "***"]
    assert iban in found[1]["error_message"], "its topic has no rule"
    assert (found[2]["error_message"], found[2]["value"]) == ("***", "***"), "too large to search"


def test_keys_stand_as_the_configuration_says(spark: SparkSession) -> None:
    letters = [Letter(key=b"c1"), Letter(key=b"c1"), Letter(key=b"c2"), Letter(key=None)]
    raw = [row["key"] for row in rows(spark, *letters)]
    assert raw == ["c1", "c1", "c2", None]
    codes = [row["key"] for row in rows(spark, *letters, keys="hmac", key_secret=b"s")]
    assert codes[0] == codes[1] != codes[2]
    assert "c1" not in codes[0]
    assert codes[3] is None
    assert {row["key"] for row in rows(spark, *letters, keys="off")} == {None}
    hidden = masked_by(MaskRule(whole=("key",)))
    assert {row["key"] for row in rows(spark, *letters, mask_of=hidden)} == {"***", None}


def test_long_texts_are_cut_and_long_keys_stay_apart(spark: SparkSession) -> None:
    long = "x" * 1_000_000
    (row, other) = rows(
        spark,
        Letter(headers=ours(1, handler=long, error_stack=long), key=long.encode() + b"a"),
        Letter(key=long.encode() + b"b"),
    )
    assert len(row["handler"]) == 1024
    assert len(row["error_stack"]) == 8192
    assert len(row["key"]) < 1100
    assert row["key"] != other["key"]


def test_half_a_character_that_json_escapes_stays_escaped(spark: SparkSession) -> None:
    """It is what cutting a text in the middle of an emoji leaves, and no UTF-8."""
    torn = b'{"name": "J\\ud83d", "iban": "DE\\ude00"}'
    letter = Letter(key=torn, value=torn)
    (row,) = rows(spark, letter, values=True)
    assert row["value"] == torn.decode()
    (row,) = rows(spark, letter, values=True, mask_of=masked_by(MaskRule(fields=("iban",))))
    assert row["value"] == row["key"] == '{"name": "J\\ud83d", "iban": "***"}'
