"""DuckDB answers from a Delta table as the events themselves would."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import attrs
import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from tests.golden_texts import Golden
from window_consumer.spark.plan import BUCKETS, writer_of
from window_consumer.trace.event import FIELDS, TraceEvent
from window_consumer.trace.event_batch import Column, OffsetColumn, decoded, encoded, may_have
from window_consumer.trace.query import TraceQuery
from window_consumer.trace.spark.search import Index, NoTableError

BEGAN_US = 1_767_225_600_000_000
DAY_US = 86_400_000_000
_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64()}


def write(path: Path, events: Sequence[TraceEvent], without: Sequence[str] = ()) -> None:
    """Append events to a table as the job lays it out, perhaps without some of its columns."""
    fields = [each for each in FIELDS if each.name not in without]
    columns = {
        each.name: pa.array([getattr(event, each.name) for event in events], _TYPES[each.kind])
        for each in fields
    }
    days = [datetime.fromtimestamp(event.time_us / 1e6, UTC).date() for event in events]
    buckets = [zlib.crc32((event.root_id or "").encode()) % BUCKETS for event in events]
    table = pa.table({**columns, "day": days, "bucket": pa.array(buckets, pa.int32())})
    write_deltalake(
        str(path), table, mode="append", partition_by=["day", "bucket"], schema_mode="merge"
    )


def made_up(rng: Random, index: int) -> TraceEvent:
    """Return an event whose fields have few values, so that questions find some of them."""
    topic, offset = rng.choice(["orders", "bills"]), rng.randrange(6)
    place = f"{topic}/0/{offset}"
    record = rng.choice([place, f"id-{rng.randrange(5)}"])
    return TraceEvent(
        event_id=f"w-1-{index}",
        record_id=record,
        root_id=rng.choice([record, "id-0"]),
        role="consumer",
        step=rng.choice(["received", "failed", "processed"]),
        key=rng.choice([None, "a", "O'Hara", 'q"']),
        tags=rng.choice([None, "web", "web,eu", "webs"]),
        time_us=BEGAN_US + rng.randrange(2 * DAY_US),
        status=rng.choice(["ok", "retry"]),
        cluster=rng.choice([None, "one:9092"]),
        topic=rng.choice([topic, f"g.{topic}.retry.1s"]),
        partition=0,
        offset=rng.randrange(6),
        orig_topic=topic,
        orig_partition=0,
        orig_offset=offset,
        group=rng.choice(["g", "h"]),
        error_fingerprint=rng.choice([None, "f00d"]),
    )


def asked(rng: Random, events: Sequence[TraceEvent]) -> TraceQuery:
    """Return a question of a few conditions, which often fit some event."""
    one = rng.choice(events)
    found = {
        "root": one.root_id,
        "record": one.record_id,
        "key": one.key,
        "topic": rng.choice([one.topic, one.orig_topic]),
        "partition": one.partition,
        "offset": one.offset,
        "since_us": one.time_us,
        "until_us": one.time_us + rng.randrange(2),
        "tag": (one.tags or "eu").split(",")[0],
        "group": one.group,
        "step": one.step,
        "status": one.status,
        "error": one.error_fingerprint,
        "cluster": one.cluster,
    }
    chosen = rng.sample(list(found), rng.randrange(4))
    return TraceQuery(**{name: found[name] for name in chosen})  # type: ignore[arg-type] # as named


def test_a_question_means_the_same_in_sql_and_in_python(tmp_path: Path) -> None:
    """... in tables, in events from Kafka, and in batches that nobody has taken apart."""
    rng = Random(3)
    events = [made_up(rng, index) for index in range(300)]
    path = tmp_path / "it's a table"
    write(path, events[:200])
    write(path, events[150:])  # fifty came twice
    index = Index(str(path))
    sizes = set()
    for _ in range(60):
        question = asked(rng, events)
        expected = {event.event_id for event in events if question.fits(event)}
        found = index.find(question, 10_000)
        assert [event.event_id for event in found] == sorted(
            expected, key=lambda name: next((e.time_us, name) for e in events if e.event_id == name)
        )
        sizes.add(len(found))
    assert len(sizes) > 10
    latest = index.find(TraceQuery(), 7)
    assert latest == sorted(events, key=lambda event: (event.time_us, event.event_id))[-7:]


def test_files_of_an_older_version_have_fewer_columns(tmp_path: Path) -> None:
    rng = Random(4)
    old, new = ([made_up(rng, start + index) for index in range(20)] for start in (0, 100))
    lost = ("cluster", "sample", "status", "error_fingerprint")
    write(tmp_path, old, without=lost)
    as_read = [
        attrs.evolve(each, cluster=None, sample=1.0, status="ok", error_fingerprint=None)
        for each in old
    ]

    def sorted_by_time(events: Sequence[TraceEvent]) -> list[TraceEvent]:
        return sorted(events, key=lambda event: (event.time_us, event.event_id))

    assert Index(str(tmp_path)).find(TraceQuery(), 100) == sorted_by_time(as_read)
    write(tmp_path, new)
    index = Index(str(tmp_path))
    assert index.find(TraceQuery(), 100) == sorted_by_time([*as_read, *new])
    assert index.find(TraceQuery(cluster="one:9092"), 100) == sorted_by_time(
        [each for each in new if each.cluster]
    )


def test_a_journey_is_found_by_its_root_else_by_the_record(tmp_path: Path) -> None:
    rng = Random(5)
    parent = attrs.evolve(made_up(rng, 1), record_id="parent", root_id="parent")
    child = attrs.evolve(made_up(rng, 2), record_id="child", root_id="parent")
    write(tmp_path, [parent, child])
    index = Index(str(tmp_path))
    assert {event.record_id for event in index.journey("parent")} == {"parent", "child"}
    assert index.journey("child") == [child]
    assert index.journey("nobody") == []


def test_where_the_job_stands_is_reported_by_the_table_and_its_checkpoint(tmp_path: Path) -> None:
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    write(table, [made_up(Random(1), 1)])
    index = Index(str(table))
    assert index.read_up_to(lambda _: str(checkpoint), "wc.trace") is None
    done = CommitProperties(app_transactions=[Transaction(writer_of("trace"), 4)])
    write_deltalake(
        str(table), index._table.to_pyarrow_table(), mode="append", commit_properties=done
    )
    assert index.read_up_to(lambda _: str(checkpoint), "wc.trace") is None
    index.refresh()
    assert index.read_up_to(lambda _: str(checkpoint), "wc.trace") is None
    (checkpoint / "offsets").mkdir(parents=True)
    for batch, offsets in ((4, {"0": 17, "1": 3}), (5, {"0": 99, "1": 99})):
        said = ["v1", "{}", json.dumps({"wc.trace": offsets})]
        (checkpoint / "offsets" / str(batch)).write_text("\n".join(said))
    assert index.read_up_to(lambda _: str(checkpoint), "wc.trace") == {0: 17, 1: 3}
    assert index.read_up_to(lambda _: str(checkpoint), "another") is None
    (checkpoint / "offsets" / "4").write_text("v1")
    assert index.read_up_to(lambda _: str(checkpoint), "wc.trace") is None


def test_no_table_says_what_makes_it(tmp_path: Path, golden: Golden) -> None:
    with golden.raises(NoTableError):
        Index(str(tmp_path / "nothing"))


def batch(offset: int, **columns: Column) -> bytes:
    places = OffsetColumn()
    places.add_run(offset, 3)
    common = {"role": "consumer", "step": "processed", "topic": "orders", "partition": 0}
    return encoded("w", 1, 3, {**common, "time_us": 1}, {"offset": places, **columns})


def test_a_batch_may_have_what_one_of_its_events_has() -> None:
    names = Column()
    names.extend(['a "quoted" one', "b", "ünïcode"])
    data = batch(17, record_id=names)
    for event in decoded(data):
        assert may_have(data, [event.record_id or "", "orders"], event.offset)
    assert not may_have(data, ["nobody"])
    assert not may_have(data, ["b"], 20)
    assert not may_have(data, [], 16)
    assert may_have(b"torn orders", ["orders"], 17)  # whoever decodes it hears why
