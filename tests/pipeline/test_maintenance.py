"""Tables stay quick and small, forget what they have to, and lose nothing else."""

from __future__ import annotations

import json
import shutil
import threading
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import duckdb
import pytest

from tests.pipeline.here import run
from tests.pipeline.test_search import write
from tests.pipeline.test_trace import records
from window_consumer.dlq.spark.config import DeadLetterSection
from window_consumer.dlq.spark.schema import DEAD_LETTERS, LETTERS
from window_consumer.spark import jars, maintenance
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.tables import BROKEN, QUARANTINE, quarantined, readable
from window_consumer.trace.event_batch import Column, OffsetColumn, decoded, encoded
from window_consumer.trace.query import TraceQuery
from window_consumer.trace.spark import table as trace
from window_consumer.trace.spark.config import TraceSection
from window_consumer.trace.spark.schema import TRACE
from window_consumer.trace.spark.search import Index

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TODAY = date(2026, 1, 2)
EVIL = "O'Hara \"\\ü"
KEYS = ["a", EVIL, "b"]
DAYS_AGO = (0, 0, 40)
_DAY_S = 86_400.0


def batch(number: int, days_ago: int) -> bytes:
    """Return a batch of sixty events, of twenty records with three keys."""
    keys, places, ids = Column(), OffsetColumn(), Column()
    keys.extend([KEYS[n % 3] for n in range(60)])
    ids.extend([f"{KEYS[n % 3]}-{n % 20}" for n in range(60)])
    places.add_run(number * 60, 60)
    now = datetime.combine(TODAY - timedelta(days_ago), datetime.min.time(), UTC)
    common = {"role": "consumer", "step": "processed", "topic": "orders", "partition": 0}
    common |= {"time_us": int(now.timestamp() * 1e6)}
    return encoded("w", number, 60, common, {"offset": places, "key": keys, "record_id": ids})


@attrs.frozen
class Tables:
    spark: SparkSession
    plan: PipelinePlan

    @property
    def path(self) -> str:
        return self.plan.table(TRACE.name)

    def append(self, number: int) -> None:
        """Append as the job does."""
        judged = trace.read(records(self.spark, batch(number, 0)))
        TRACE.append(trace.events(readable(judged)), self.path, "job", number)

    def quarantine(self, *values: bytes) -> None:
        BROKEN.make(self.spark, self.plan)
        bad = quarantined(trace.read(records(self.spark, *values)), "trace")
        BROKEN.append(bad, self.plan.table(BROKEN.name), "job", 1)

    @property
    def files(self) -> list[Path]:
        """All that lies there, whatever the log says."""
        return sorted(Path(self.path).glob("day=*/**/*.parquet"))

    def ids(self) -> list[str]:
        return [event.event_id for event in Index(self.path).find(TraceQuery(), 10_000)]


@pytest.fixture(scope="module")
def laid_out(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table that nobody touches: each test gets a copy."""
    directory = tmp_path_factory.mktemp("tables")
    made = Tables(spark, PipelinePlan(kafka={}, directory=str(directory)))
    TRACE.make(spark, made.plan)
    for number, days_ago in enumerate(DAYS_AGO):
        write(Path(made.path), list(decoded(batch(number, days_ago))))
    return directory


@pytest.fixture
def tables(spark: SparkSession, laid_out: Path, tmp_path: Path) -> Tables:
    shutil.copytree(laid_out, tmp_path, dirs_exist_ok=True)
    return Tables(spark, PipelinePlan(kafka={}, directory=str(tmp_path)))


def reported(number: int) -> set[str]:
    return {f"w-{number}-{index}" for index in range(60)}


def test_small_files_become_one_and_old_days_go(tables: Tables) -> None:
    before = len(tables.files)
    kept = {each.name: each for each in maintenance.maintain(tables.spark, tables.plan, TODAY)}
    buckets = {file.parent for file in tables.files if TODAY.isoformat() in str(file)}
    assert kept["trace"] == maintenance.TableMaintenance("trace", 60, len(buckets))
    assert set(tables.ids()) == reported(0) | reported(1)
    index = Index(tables.path)
    assert len(index._files(TraceQuery())) == len(buckets)
    for name in index._files(TraceQuery()):
        rows = duckdb.read_parquet(name).project("root_id").fetchall()
        assert rows == sorted(rows)
    assert len(tables.files) > before  # of those that were there a week ago there were none
    assert maintenance.compact(tables.spark, TRACE, tables.path) == 0


def test_the_command_prints_what_it_did_as_json(tables: Tables, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps({"kafka": {"bootstrap.servers": "127.0.0.1:1"}, "directory": "."}))
    ended = run(tables.spark, "pipeline", "maintain", "-c", str(file), "--json")
    assert ended.code == 0, ended.said
    assert ended.json["tables"]["trace"].keys() == {"compacted", "deleted"}
    assert ended.json["tables"]["trace"]["deleted"] >= 60


def test_jars_that_are_there_are_counted_as_json(spark: SparkSession) -> None:
    ended = run(spark, "pipeline", "jars", "--json")
    assert ended.code == 0, ended.said
    assert (ended.json["downloaded"], ended.json["already_there"]) == ([], len(jars.locked()))


def test_old_dead_letters_go_and_those_that_tell_no_time_by_when_they_were_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    """... after their own time, which is not that of the trace; what was quarantined, too."""
    days = {
        TraceSection: TraceSection(keep=_DAY_S),
        DeadLetterSection: DeadLetterSection(keep=10 * _DAY_S),
    }
    plan = PipelinePlan(kafka={}, directory=str(tmp_path), features=days)
    path, broken = LETTERS.make(spark, plan), BROKEN.make(spark, plan)
    now = datetime.combine(TODAY, datetime.min.time(), UTC)
    days_ago = {"today": 0, "kept": 10, "old": 11}
    rows = [
        {
            **dict.fromkeys(DEAD_LETTERS.names),
            "id": f"{name}, {'timed' if has_time else 'timeless'}",
            "written_at": now - timedelta(ago),
            "day": TODAY - timedelta(ago) if has_time else None,
        }
        for name, ago in days_ago.items()
        for has_time in (True, False)
    ]
    LETTERS.append(spark.createDataFrame(rows, DEAD_LETTERS), path, "job", 1)
    wrong = [
        {**dict.fromkeys(QUARANTINE.names), "subject": subject, "reason": f"{subject}, {name}"}
        | {"written_at": now - timedelta(ago)}
        for subject in ("dlq", "audit")
        for name, ago in days_ago.items()
    ]
    BROKEN.append(spark.createDataFrame(wrong, QUARANTINE), broken, "job", 1)
    kept = {each.name: each.dropped for each in maintenance.maintain(spark, plan, TODAY)}
    assert kept == {"dead_letters": 2, "quarantine": 1}
    letters = spark.read.format("delta").load(path).select("id").collect()
    assert {row["id"] for row in letters} == {
        f"{name}, {kind}" for name in ("today", "kept") for kind in ("timed", "timeless")
    }
    left = spark.read.format("delta").load(broken).select("reason").collect()
    assert len(left) == 5
    assert "dlq, old" not in {row["reason"] for row in left}


def test_what_was_quarantined_of_the_trace_goes_with_its_days(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = Tables(spark, PipelinePlan(kafka={}, directory=str(tmp_path)))
    tables.quarantine(b"no event")
    path = tables.plan.table(BROKEN.name)
    counts = trace.read(records(tables.spark, b"no counts"))
    BROKEN.append(quarantined(counts, "audit"), path, "another job", 1)
    kept_days = TraceSection().keep_days
    for days, dropped in ((kept_days - 1, 0), (kept_days + 2, 1)):
        today = TODAY + timedelta(days)
        kept = {each.name: each for each in maintenance.maintain(tables.spark, tables.plan, today)}
        assert kept["quarantine"].dropped == dropped
    left = tables.spark.read.format("delta").load(path).collect()
    assert [(row["subject"], bytes(row["value"])) for row in left] == [("audit", b"no counts")]


def bytes_of(file: Path) -> str:
    return str(duckdb.read_parquet(str(file)).project("key, record_id").fetchall())


def test_a_key_is_forgotten_in_all_files_and_nothing_else_is(tables: Tables) -> None:
    without_key = encoded(
        "v",
        1,
        1,
        {"role": "producer", "step": "sent", "topic": "orders", "time_us": 1_767_312_000_000_000}
        | {"record_id": f"{EVIL}-1"},
        {},
    )
    broken = b'{"format":1,"columns":{"key":{"v":["O\'Hara \\"\\\\\\u00fc"]}}}'
    write(Path(tables.path), list(decoded(without_key)))
    tables.quarantine(broken, b'{"other":1}')
    maintenance.compact(tables.spark, TRACE, tables.path)  # the files before that have it as well
    assert Index(tables.path).count(TraceQuery(key=EVIL)) == 60
    gone = maintenance.delete_key(tables.spark, tables.plan, EVIL, EVIL)
    assert gone == maintenance.DeletedKey(steps=61, letters=0, quarantined=1)
    expected = {f"w-{number}-{n}" for number in range(3) for n in range(60) if n % 3 != 1}
    assert set(tables.ids()) == expected
    assert tables.files
    assert not [file for file in tables.files if "Hara" in bytes_of(file)]
    quarantined = list(Path(tables.plan.table(BROKEN.name)).glob("subject=*/*.parquet"))
    assert not [file for file in quarantined if b"Hara" in file.read_bytes()]
    left = tables.spark.read.format("delta").load(tables.plan.table(BROKEN.name)).collect()
    assert [bytes(row["value"]) for row in left] == [b'{"other":1}']


def test_it_runs_beside_a_job_and_beside_another_one(tables: Tables) -> None:
    """Each round of a job meets a compaction and a deletion; no row is lost, none comes twice."""
    failures: list[BaseException] = []

    def tidy() -> None:
        try:
            maintenance.compact(tables.spark, TRACE, tables.path)
        except BaseException as error:
            failures.append(error)

    def forget() -> None:
        try:
            maintenance.delete_trace_of_key(tables.spark, tables.path, "b")
        except BaseException as error:
            failures.append(error)

    beside = [threading.Thread(target=each) for each in (tidy, forget)]
    for thread in beside:
        thread.start()
    for number in range(3, 5):
        tables.append(number)
    for thread in beside:
        thread.join()
    assert failures == []
    maintenance.delete_trace_of_key(tables.spark, tables.path, "b")
    expected = [f"w-{number}-{n}" for number in range(5) for n in range(60) if n % 3 != 2]
    rows = tables.spark.read.format("delta").load(tables.path).select("event_id").collect()
    assert sorted(row["event_id"] for row in rows) == sorted(expected)
