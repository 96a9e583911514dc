"""``window-consumer audit report``: what it says of what it cannot do, before Spark starts."""

from __future__ import annotations

import pytest

from tests.commands import Commands
from tests.golden_texts import Golden
from window_consumer.audit.commands.printing import WITHOUT_TIMESTAMP, bucket_of, name_of

NOON = "2026-01-31T12:00:00Z"
NOON_MS = 1_769_860_800_000


@pytest.fixture
def pipeline(commands: Commands) -> Commands:
    """A pipeline that has not run, and whose Kafka nobody can reach."""
    config = {"kafka": {"bootstrap.servers": "127.0.0.1:1"}, "directory": "lake"}
    commands.configure(config, "pipeline.yaml")
    return commands


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--since", "yesterday"), "'yesterday' is not a duration"),
        (("--since", "-5m"), "'-5m' is negative"),
        (("--since", "5"), "'5' "),
        (
            ("--explain", "noon"),
            "'noon' is not the start of a bucket, such as 2026-01-31T12:00:00Z",
        ),
        (("--explain", "12:00"), "'12:00' is not the start of a bucket"),
        (("--explain", ""), "'' is not the start of a bucket"),
        (("--explain", "1769860800000"), "'1769860800000' is not the start of a bucket"),
        (("--explain", "2026-02-30T12:00:00Z"), "is not the start of a bucket"),
        (("--explain", "0001-01-01T00:00:00+14:00"), "is not the start of a bucket"),
        (("--explain", "9999-12-31T23:59:59-14:00"), "is not the start of a bucket"),
        (("--explain", "1969-12-31T23:59:00Z"), "is before 1970"),
        (("-c", "elsewhere.yaml"), "elsewhere.yaml"),
        (("orders",), "unexpected extra argument"),
        (("--explain", NOON, "--since", "1d"), "--explain and --since are mutually exclusive"),
        (
            ("--explain", NOON, "--alerts", "alerts"),
            "--explain and --alerts are mutually exclusive",
        ),
    ],
)
def test_what_is_asked_wrongly_is_reported_at_once(
    pipeline: Commands, options: tuple[str, ...], said: str
) -> None:
    ended = pipeline.run("audit", "report", *options)
    assert ended.code == 2
    assert said in ended.err


@pytest.mark.parametrize("options", [(), ("--explain", NOON), ("--json",)])
def test_a_table_that_is_not_there_is_reported_before_spark_starts(
    pipeline: Commands, options: tuple[str, ...], golden: Golden
) -> None:
    ended = pipeline.run("audit", "report", "--no-refresh", *options, env={"JAVA_HOME": "nowhere"})
    assert ended.code == 2
    golden(ended.err)


@pytest.mark.parametrize(
    ("text", "start_ms"),
    [
        (NOON, NOON_MS),
        ("2026-01-31T12:00:00", NOON_MS),
        ("2026-01-31 14:00+02:00", NOON_MS),
        ("2026-01-31T12:00:00.123Z", NOON_MS + 123),
        (WITHOUT_TIMESTAMP, 0),
        (str(NOON_MS), None),
    ],
)
def test_a_bucket_is_named_by_its_start(text: str, start_ms: int | None) -> None:
    if start_ms is None:
        with pytest.raises(ValueError, match="start"):
            bucket_of(text)
    else:
        assert bucket_of(text) == start_ms


@pytest.mark.parametrize("start_ms", [0, NOON_MS])
def test_what_the_report_prints_of_a_bucket_can_be_asked_for(start_ms: int) -> None:
    assert bucket_of(name_of(start_ms)) == start_ms
