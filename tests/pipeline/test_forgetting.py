"""Who has a key forgotten has it forgotten in the dead letters' table, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from tests.golden_texts import Golden
from tests.model.test_journey import event
from tests.pipeline.dead_letters import Letter, ours, records
from tests.pipeline.here import run
from tests.pipeline.streams import planned
from tests.pipeline.test_search import write
from window_consumer.dlq.spark import table as dead_letters
from window_consumer.dlq.spark.config import Reading
from window_consumer.dlq.spark.schema import LETTERS
from window_consumer.spark import tables
from window_consumer.spark.tables import BROKEN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from window_consumer.spark.plan import PipelinePlan

KEY, OTHER = "customer-17", "customer-171"
SECRET = b"their secret"


def letter(offset: int, key: str, record: str | None) -> Letter:
    own = [*ours(offset, id=record), ("who", SECRET)]
    return Letter(headers=own, key=key.encode(), value=json.dumps({"who": key}).encode())


def with_letters(spark: SparkSession, file: Path) -> PipelinePlan:
    """Fill the table: a letter that the key names, one that only the trace names, and others'."""
    plan = planned(file)
    given = [
        letter(1, KEY, "record-1"),
        letter(2, KEY, None),
        letter(3, OTHER, "record-3"),
        letter(4, OTHER, None),
    ]
    judged = tables.readable(dead_letters.judge(records(spark, *given)))
    rows = dead_letters.letters(judged, Reading.of(plan))
    LETTERS.append(rows, LETTERS.make(spark, plan), "job", 1)
    return plan


def offsets(spark: SparkSession, plan: PipelinePlan) -> list[int]:
    rows = spark.read.format("delta").load(plan.table("dead_letters")).select("original_offset")
    return sorted(row.original_offset for row in rows.collect())


def in_files(plan: PipelinePlan) -> str:
    """Return all that the files of dead letters have, whatever the table's log says."""
    files = [str(each) for each in Path(plan.table("dead_letters")).glob("day=*/*.parquet")]
    return str(duckdb.read_parquet(files).project("key, value, headers").fetchall())


HOW: dict[str, Any] = {
    "raw": {"dlq": {"values": True}},
    "masked": {"dlq": {"values": True}, "mask": [{"fields": ["iban"]}]},
    "hmac": {"dlq": {"keys": "hmac", "key_secret": "s3cret"}},
}


@pytest.mark.parametrize("how", HOW)
def test_dead_letters_of_a_key_go_from_the_table_and_its_files(
    spark: SparkSession, tmp_path: Path, how: str, golden: Golden
) -> None:
    """... where there is no table of the trace, too."""
    file = configured(tmp_path, **HOW[how])
    plan = with_letters(spark, file)
    arguments = ("trace", "delete", "--key", KEY, "-c", str(file))
    dry = run(spark, *arguments, "--dry-run")
    golden(dry.out)
    ended = run(spark, *arguments, "--yes")
    assert ended.code == 0, ended.said
    assert "0 steps, 2 dead letters" in ended.out
    assert offsets(spark, plan) == [3, 4]
    left = in_files(plan)
    assert f"'{KEY}'" not in left
    assert left.count(SECRET.decode()) == 2


def test_what_only_the_trace_can_name_goes_as_well(spark: SparkSession, tmp_path: Path) -> None:
    """... where the table has no keys, by the records' ids or places."""
    file = configured(tmp_path, dlq={"keys": "off"})
    plan = with_letters(spark, file)
    steps = [
        event("received", 1, event_id="1", record_id="record-1", key=KEY),
        event("received", 2, event_id="2", record_id="orders/0/2", key=KEY),
        event("received", 3, event_id="3", record_id="record-3", key=OTHER),
    ]
    write(Path(plan.table("trace")), steps)
    arguments = ("trace", "delete", "--key", KEY, "-c", str(file))
    dry = run(spark, *arguments, "--dry-run").out.splitlines()
    assert [line.split(" with ")[0] for line in dry] == ["2 steps", "2 dead letters"]
    ended = run(spark, *arguments, "--yes", "--json")
    deleted = {"steps": 2, "dead_letters": 2}
    assert deleted.items() <= ended.json.items(), ended.said
    assert offsets(spark, plan) == [3, 4]
    again = run(spark, *arguments, "--dry-run", "--json")
    assert again.json == {"dry_run": True, "steps": 0, "dead_letters": 0}


def test_a_dead_letter_in_the_quarantine_that_names_the_key_goes(
    spark: SparkSession, tmp_path: Path, golden: Golden
) -> None:
    file = configured(tmp_path)
    plan = with_letters(spark, file)
    unknown = [("wc-format", b"99")]
    values = [json.dumps({"who": key}).encode() for key in (KEY, OTHER)]
    given = [Letter(headers=unknown, value=value, offset=n) for n, value in enumerate(values, 1)]
    bad = tables.quarantined(dead_letters.judge(records(spark, *given)), "dlq")
    BROKEN.append(bad, BROKEN.make(spark, plan), "job", 1)
    ended = run(spark, "trace", "delete", "--key", KEY, "-c", str(file), "--yes")
    golden(ended.out)
    left = spark.read.format("delta").load(plan.table("quarantine")).collect()
    assert [bytes(row.value) for row in left] == values[1:]


def configured(directory: Path, **more: Any) -> Path:
    """Write a pipeline.yaml whose Kafka is never asked."""
    file = directory / "pipeline.yaml"
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    file.write_text(json.dumps({"kafka": kafka, "directory": "tables", **more}))
    return file
