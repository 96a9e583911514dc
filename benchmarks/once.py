"""``once``: what it costs beside a transaction written by hand, and what kills do to it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any, Final, cast

import cattrs
import sqlalchemy as sa
from attrs import asdict, evolve
from confluent_kafka import Consumer, TopicPartition
from sqlalchemy.orm import Session

from benchmarks import children, usage
from benchmarks.calls import BatchHandler, Handler
from benchmarks.framework import START_S, WORKER, end, planned, watch
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import PARTITIONS, Workload
from window_consumer import App, Produce, Record
from window_consumer.database import Once, Outbox
from window_consumer.model.errors import RunError
from window_consumer.testing.real_kafka import RealKafka
from window_consumer.testing.real_postgres import RealPostgres

SLOTS: Final = 16
BATCH: Final = 100
_BATCHES_OF: Final = 5
"""So many times the records go through in batches, where each costs less."""

_GROUP: Final = "wc-bench-once"
_TOPIC: Final = "wc-bench-once-orders"
_RESULTS: Final = "wc-bench-once-results"
_END_S: Final = 100.0
_READ_S: Final = 30.0
_CHECK_S: Final = 0.05
_REBALANCES: Final = 3
_SOON_FREE: Final = {
    "group.consumer.session.timeout.ms": 3_000,
    "group.consumer.heartbeat.interval.ms": 1_000,
}
"""The partitions of a member that was killed are another's after 3 s."""
_FAILS_ONE_IN: Final = 100
"""Records that become dead letters, until the redrive."""

_metadata = sa.MetaData()
_orders = sa.Table(
    "orders",
    _metadata,
    sa.Column("id", sa.Text(), primary_key=True),
    sa.Column("value", sa.LargeBinary()),
)
_effects = sa.Table("effects", _metadata, sa.Column("id", sa.Text()), sa.Column("at", sa.Text()))
"""Without a key: whatever happens twice is there twice."""
_outbox = Outbox(_metadata)


@contextmanager
def _database() -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory(prefix="wc-bench-") as directory,
        RealPostgres.start(Path(directory)) as postgres,
    ):
        url = postgres.create_database("shop")
        engine = sa.create_engine(url)
        _metadata.create_all(engine)
        Once(engine).tables.metadata.create_all(engine)
        engine.dispose()
        yield url


# ---- what it costs

_turn = cycle((("own", "once"), ("once", "own")))


def run_once(topics: Topics, workload: Workload) -> Run:
    """Run the handler with ``once`` and with a transaction of its own, then both in batches."""
    runs: dict[str, Run] = {}
    order = next(_turn)
    many = workload.topic.records * _BATCHES_OF
    batches = evolve(workload, batch=BATCH, topic=evolve(workload.topic, records=many))
    with _database() as url:
        for which in (workload, batches):
            topic = topics.filled(which.topic, lambda _: None)
            for kind in order:
                runs[f"{kind}-{which.batch}"] = _one_run(topics, which, topic, url, kind)
    once, own = runs["once-0"], runs["own-0"]
    in_batches, own_in_batches = runs[f"once-{BATCH}"], runs[f"own-{BATCH}"]
    return evolve(
        once,
        lost=sum(run.lost for run in runs.values()),
        committed_equals_end=all(run.committed_equals_end for run in runs.values()),
        ratios={
            "once": once.records_per_s / own.records_per_s,
            "batches": in_batches.records_per_s / own_in_batches.records_per_s,
        },
        notes={
            "own_per_s": own.records_per_s,
            "batches_per_s": in_batches.records_per_s,
            "own_batches_per_s": own_in_batches.records_per_s,
        },
    )


def _one_run(topics: Topics, workload: Workload, topic: str, url: str, kind: str) -> Run:
    group = f"wc-bench-{uuid.uuid4().hex[:12]}"
    answer = children.run(
        "once",
        bootstrap=topics.bootstrap,
        topic=topic,
        group=group,
        workload=workload,
        url=url,
        kind=kind,
    )
    complete = topics.committed_equals_end(topic, group)
    topics.forget(group)
    return evolve(cattrs.structure(answer, Run), committed_equals_end=complete)


def run(bootstrap: str, topic: str, group: str, workload: Workload, url: str, kind: str) -> Any:
    """Handle a topic's records once: a child process."""
    engine = sa.create_engine(url, pool_size=workload.slots)
    with engine.begin() as connection:
        connection.execute(sa.text("TRUNCATE orders, wc_once"))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("CHECKPOINT"))
    app, records = App("benchmarks"), workload.topic.records
    once = Once(engine) if kind == "once" else None
    if workload.batch:
        batch = _place_all if once else _place_all_by_hand(engine)
        app.batch_handler(name=WORKER, max_records=workload.batch, once=once)(batch)
    else:
        place = _place if once else _place_by_hand(engine)
        app.handler(name=WORKER, once=once)(place)
    app, plan = planned(bootstrap, topic, group, workload, _place, app=app)
    used = usage.cpu_s()
    running = app.start_plan(plan, start_timeout=START_S)
    stretch = watch(running, records)
    end(running)
    used = usage.cpu_s() - used
    with engine.connect() as connection:
        rows = connection.scalar(sa.select(sa.func.count()).select_from(_orders)) or 0
    engine.dispose()
    return asdict(Run(stretch.records_per_s, used, usage.max_rss_mb(), lost=records - rows))


def _row(record: Record) -> dict[str, Any]:
    return {"id": f"{record.partition}-{record.offset}", "value": record.value}


def _place(record: Record) -> None:
    record.session.execute(sa.insert(_orders).values(**_row(record)))


def _place_all(records: list[Record]) -> None:
    records[0].session.execute(sa.insert(_orders), [_row(record) for record in records])


def _place_by_hand(engine: sa.Engine) -> Handler:
    def place(record: Record) -> None:
        with Session(engine) as session, session.begin():
            session.execute(sa.insert(_orders).values(**_row(record)))

    return place


def _place_all_by_hand(engine: sa.Engine) -> BatchHandler:
    def place(records: list[Record]) -> None:
        with Session(engine) as session, session.begin():
            session.execute(sa.insert(_orders), [_row(record) for record in records])

    return place


# ---- what kills do


def run_kills(_topics: Topics, workload: Workload) -> Run:
    """Kill workers while they write effects and results; redrive what failed; compare."""
    with (
        tempfile.TemporaryDirectory(prefix="wc-bench-") as folder,
        RealKafka.start(Path(folder), _SOON_FREE) as kafka,
        _database() as url,
    ):
        topics = Topics(kafka.bootstrap)
        for name in (_TOPIC, _RESULTS, f"{_GROUP}.{_TOPIC}.dlq"):
            topics.make(name)
        children.run("write", bootstrap=kafka.bootstrap, topic=_TOPIC, spec=workload.topic)
        file = Path(folder, "workers.yaml")
        file.write_text(json.dumps(_config(kafka.bootstrap, url)))
        engine = sa.create_engine(url)
        began = time.perf_counter()
        try:
            _kill_and_redrive(engine, file, url, workload)
            seconds = time.perf_counter() - began
            effects = _column(engine, _effects.c.id)
        finally:
            engine.dispose()
        wanted = {
            f"{_TOPIC}/{partition}/{offset}"
            for partition in range(PARTITIONS)
            for offset in range(workload.topic.records // PARTITIONS)
        }
        return _judged(wanted, effects, _results(kafka.bootstrap), seconds)


def _config(bootstrap: str, url: str) -> dict[str, Any]:
    worker = {
        "topics": [_TOPIC],
        "group": _GROUP,
        "concurrency": SLOTS,
        "retry": {"attempts": 1},
        "breaker": {"enabled": False},
    }
    return {
        "kafka": {"bootstrap.servers": bootstrap},
        "outbox": {"database": url},
        "workers": {WORKER: worker},
    }


def _kill_and_redrive(engine: sa.Engine, file: Path, url: str, workload: Workload) -> None:
    records = workload.topic.records
    bad = sum(_is_bad(partition, offset) for partition, offset in _places(records))
    first = _member(file, url, mended=False)
    members = [first]
    try:
        for kill in range(workload.kills):
            share = records * (kill + 1) // (workload.kills + 4)
            _until(lambda share=share: _count(engine, _effects) >= share, f"effects, kill {kill}")  # type: ignore[misc] # of a loop
            second = None
            if kill % (workload.kills // _REBALANCES) == 1:  # another member comes and goes
                second = _member(file, url, mended=False)
                members.append(second)
                time.sleep(2.0)
            members[0].kill()
            members[0].wait()
            members[0] = _member(file, url, mended=False)
            if second is not None:
                second.terminate()
                second.wait(_END_S)
                members.remove(second)
        _until(lambda: _count(engine, _effects) >= records - bad, "all that do not fail")
        members[0].terminate()
        members[0].wait(_END_S)
        _redrive(file)
        members[0] = _member(file, url, mended=True)
        _until(lambda: _count(engine, _effects) >= records, "those that were redriven")
        _until(lambda: _count(engine, _outbox.table) == 0, "an empty outbox")
        members[0].terminate()
        members[0].wait(_END_S)
    finally:
        for member in members:
            member.kill()
            member.wait()


def _member(file: Path, url: str, *, mended: bool) -> subprocess.Popen[bytes]:
    command = children.command("once_member", file=str(file), url=url, mended=mended)
    return subprocess.Popen(command, cwd=children.CHECKOUT)


def run_member(file: str, url: str, *, mended: bool) -> None:
    """Run a worker until it is killed: a child process."""
    engine = sa.create_engine(url, pool_size=SLOTS + 2)
    app = App("benchmarks")

    def place(record: Record) -> Produce:
        if not mended and _is_bad(record.origin.partition, record.origin.offset):
            raise ValueError("a bug that somebody corrects later")
        at = f"{record.topic}/{record.partition}/{record.offset}"
        record.session.execute(sa.insert(_effects).values(id=record.id, at=at))
        return Produce(_RESULTS, record.key, record.id)

    app.handler(name=WORKER, once=Once(engine, outbox=_outbox))(place)
    running = app.start(Path(file), start_timeout=START_S)
    signal.signal(signal.SIGTERM, lambda *_: running.stop())
    running.wait()


def _redrive(file: Path) -> None:
    command = [sys.executable, "-m", "window_consumer", "dlq", "redrive", "-c", str(file)]
    subprocess.run(command, cwd=children.CHECKOUT, check=True, timeout=_END_S)


def _places(records: int) -> Iterator[tuple[int, int]]:
    for partition in range(PARTITIONS):
        for offset in range(records // PARTITIONS):
            yield partition, offset


def _is_bad(_partition: int, offset: int) -> bool:
    return offset % _FAILS_ONE_IN == 0


def _count(engine: sa.Engine, table: sa.Table) -> int:
    with engine.connect() as connection:
        return int(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)


def _column(engine: sa.Engine, column: sa.Column[Any]) -> Counter[str]:
    with engine.connect() as connection:
        return Counter(connection.scalars(sa.select(column)))


def _results(bootstrap: str) -> Counter[str]:
    """Return how often each record's result is there; those with one ``wc-id`` count once."""
    ends = Topics(bootstrap).log_ends(_RESULTS)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "wc-bench-reader"})
    found: dict[bytes, str] = {}
    read = 0
    try:
        consumer.assign([TopicPartition(_RESULTS, each, 0) for each in ends])
        deadline = time.perf_counter() + _READ_S
        while read < sum(ends.values()) and time.perf_counter() < deadline:
            for message in consumer.consume(10_000, 0.5):
                read += 1
                row_id = dict(message.headers() or ())["wc-id"]
                found[cast("bytes", row_id)] = (message.value() or b"").decode()
    finally:
        consumer.close()
    return Counter(found.values())


def _judged(wanted: set[str], effects: Counter[str], results: Counter[str], seconds: float) -> Run:
    lost = len(wanted - effects.keys()) + len(wanted - results.keys())
    twice = sum(count - 1 for found in (effects, results) for count in found.values())
    invented = len((effects.keys() | results.keys()) - wanted)
    return Run(
        len(wanted) / seconds,
        lost=lost,
        duplicates=twice,
        notes={"twice": float(twice), "invented": float(invented)},
    )


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.perf_counter() + _END_S
    while not holds():
        if time.perf_counter() > deadline:
            raise RunError(f"{what}: not within {_END_S:g} s")
        time.sleep(_CHECK_S)


RUNS: Final = {"once": run_once, "once-kills": run_kills}
"""By the work of the workload."""
