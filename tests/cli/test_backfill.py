"""``backfill`` reports what is wrong before anything runs; no session of Spark is started."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.commands import Commands, kafka_of, produce
from window_consumer.cli.options import since_1970
from window_consumer.cli.output import duration
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.errors import UsageError
from window_consumer.model.offset_ranges import Span
from window_consumer.spark import jars
from window_consumer.spark.backfill.ranges import (
    WantedRange,
    next_chunk,
    resolve,
    warnings,
    without,
)
from window_consumer.spark.backfill.shares import shared_out
from window_consumer.spark.commands.backfill_command import backfill_command

SHOP = """
from window_consumer import App

app = App("shop")

@app.handler("orders", group="shop")
def charge(record):
    pass
"""


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> Commands:
    commands.application(SHOP)
    commands.configure({"kafka": kafka_of(embedded), "workers": {"charge": {}}})
    return commands


WRONG = {
    ("--from", "yesterday"): "'yesterday'",
    ("--from-offset", "7"): "PARTITION=OFFSET",
    ("--rate", "100"): "100/s",
    ("--rate", "0/s"): "'0/s'",
    ("--chunk", "0"): "x>=1",
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.items(), ids=str)
def test_wrong_options_are_refused(arguments: Sequence[str], said: str) -> None:
    result = CliRunner().invoke(backfill_command, ["shop:app", "--topic", "orders", *arguments])
    assert result.exit_code == 2
    assert said in result.output


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--from 2026-02-01T00:00:00Z .*--to 2026-01"):
        WantedRange("orders", since_1970("2026-02-01", 1000), since_1970("2026-01-01", 1000))


def test_offsets_that_end_before_they_begin_are_refused() -> None:
    """... and not taken for a partition without records."""
    with pytest.raises(UsageError, match=r"--from-offset 1=500 .*--to-offset 1=500"):
        WantedRange("orders", from_offsets={0: 3, 1: 500}, to_offsets={0: 5, 1: 500})


@pytest.mark.parametrize(
    ("from_offset", "to_offset", "said"),
    [
        (3, 51, [r"--to-offset 0=51: orders .*\b0 to 50\b.* partition 0\b"]),
        (60, None, [r"--from-offset 0=60: orders .*\b0 to 50\b.* partition 0\b"]),
        (3, 50, []),
    ],
)
def test_offsets_that_are_not_there_are_reported(
    embedded: EmbeddedBroker, from_offset: int, to_offset: int | None, said: list[str]
) -> None:
    embedded.create_topic("orders", 1)
    produce(embedded.bootstrap, "orders", *[b"x"] * 50)
    ends = {} if to_offset is None else {0: to_offset}
    wanted = WantedRange("orders", from_offsets={0: from_offset}, to_offsets=ends)
    with TopicReader(embedded.client_settings(), _Log()) as reader:  # type: ignore[arg-type] # takes lines
        found = list(warnings(wanted, resolve(wanted, reader), reader, {}, DAY))
    assert len(found) == len(said)
    assert all(re.match(start, each) for each, start in zip(found, said, strict=True))


@pytest.mark.usefixtures("connectors")
def test_a_range_without_records_has_no_forecast(shop: Commands, embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 1)
    produce(embedded.bootstrap, "orders", *[b"x"] * 50)
    for more in ((), ("--dry-run",)):
        given = ("--topic", "orders", "--from", "2100-01-01", *more)
        ended = shop.run("backfill", "shop:app", *given)
        assert ended.code == 0, ended.said
        assert ended.out.startswith("orders ")
        assert "2100-01-01T00:00:00Z" in ended.out
        assert len(ended.out.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--topic", "invoices"), "--topic invoices: "),
        (("--topic", "orders"), "topic orders: "),
        (("--topic", "orders", "--worker", "nobody"), "worker nobody: "),
    ],
)
def test_a_topic_that_nobody_reads_or_that_is_not_there_is_refused(
    shop: Commands, arguments: Sequence[str], said: str
) -> None:
    ended = shop.run("backfill", "shop:app", *arguments, "--dry-run")
    assert ended.code == 2, ended.said
    assert said in ended.err


def test_a_dry_run_tells_counts_sizes_and_time(shop: Commands, embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 1)
    produce(embedded.bootstrap, "orders", *[b"0123456789"] * 50)
    options = ("--topic", "orders", "--dry-run", "--pool", "5", "--rate", "10/s", "--chunk", "20")
    counted = shop.run("backfill", "shop:app", *options, "--json").json
    assert (counted["topic"], counted["offsets"], len(counted["partitions"])) == ("orders", 50, 1)
    ended = shop.run("backfill", "shop:app", *options)
    assert ended.code == 0, ended.said
    assert re.search(r"\bpartition 0: .*\b0 to 50\b", ended.out)
    assert re.search(r"\b50 records, 500 B \(10 B\b.*; 3 chunks", ended.out)
    assert re.search(r"\b5 concurrent calls\b", ended.out)
    assert re.search(r"--rate: at least 5 s\b", ended.out)


def test_a_missing_extra_is_named_before_missing_connectors(
    shop: Commands, embedded: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(jars.DIRECTORY_VARIABLE, str(shop.directory))
    embedded.create_topic("orders", 1)
    (shop.directory / "pyspark.py").write_text("raise ModuleNotFoundError(name='pyspark')")
    ended = shop.run("backfill", "shop:app", "--topic", "orders")
    assert ended.code == 2, ended.said
    assert "pip install 'window-consumer[spark]'" in ended.err


def test_chunks_hold_a_like_share_of_each_partition() -> None:
    left, sizes = {0: Span(100, 200), 1: Span(0, 10), 5: Span(7, 8)}, []
    while left:
        piece = next_chunk(left, 40)
        sizes.append(sum(span.count for span in piece.values()))
        assert {each: span.first for each, span in piece.items()} == {
            each: span.first for each, span in left.items()
        }
        left = without(left, {each: span.end for each, span in piece.items()})
    assert sum(sizes) == 111
    assert max(sizes) <= 40 + 3
    assert len(sizes) == 3


@settings(deadline=None)  # a busy machine
@given(
    ranges=st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 50), st.integers(1, 200))),
    tasks=st.integers(1, 12),
    may_split=st.booleans(),
)
def test_shares_hold_every_offset_once(
    ranges: dict[int, tuple[int, int]], tasks: int, *, may_split: bool
) -> None:
    spans = {partition: Span(first, first + count) for partition, (first, count) in ranges.items()}
    shares = shared_out(spans, tasks, may_split=may_split)
    assert len(shares) <= tasks
    assert all(shares)
    offsets = sorted(
        (partition, offset)
        for share in shares
        for partition, span in share.items()
        for offset in range(span.first, span.end)
    )
    wanted = [(p, o) for p, span in sorted(spans.items()) for o in range(span.first, span.end)]
    assert offsets == wanted
    if not may_split:
        assert sum(map(len, shares)) == len(spans)
    elif len(shares) > 1:
        sizes = [sum(span.count for span in share.values()) for share in shares]
        assert max(sizes) <= 2 * -(-len(wanted) // tasks)


REMOTE = {"remote.storage.enable": "true", "local.retention.ms": "3600000"}
DAY = since_1970("2026-01-02", 1000)


@pytest.mark.parametrize(
    ("settings", "from_text", "is_below"),
    [
        (REMOTE, "2026-01-01T22:00", True),
        (REMOTE, "2026-01-01T23:30", False),
        ({**REMOTE, "local.retention.ms": "-2", "retention.ms": "86400000"}, "2025-12-31", True),
        ({**REMOTE, "local.retention.ms": "-2", "retention.ms": "-1"}, "2025-12-31", False),
        ({**REMOTE, "remote.storage.enable": "false"}, "2025-12-31", False),
        ({}, "2025-12-31", False),
    ],
)
def test_reading_below_the_local_retention_is_reported(
    embedded: EmbeddedBroker, settings: dict[str, str], from_text: str, *, is_below: bool
) -> None:
    embedded.create_topic("orders", 1)
    with TopicReader(embedded.client_settings(), _Log()) as reader:  # type: ignore[arg-type] # takes lines
        wanted = WantedRange("orders", since_1970(from_text, 1000))
        said = list(warnings(wanted, {}, reader, settings, DAY))
    assert bool(said) is is_below
    assert not is_below or "remote storage" in said[0]


class _Log:
    def log(self, *_: object, **__: object) -> None:
        """Say nothing."""


def test_durations_are_reported_in_two_units_at_most() -> None:
    reported = [duration(s) for s in (0.02, 5, 65, 3600, 93_600, 172_800)]
    assert reported == ["20 ms", "5 s", "1 min 5 s", "1 h", "1 d 2 h", "2 d"]
