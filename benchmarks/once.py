"""``once``: what it costs beside a transaction written by hand."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any, Final

import cattrs
import sqlalchemy as sa
from attrs import asdict, evolve
from sqlalchemy.orm import Session

from benchmarks import children, usage
from benchmarks.calls import BatchHandler, Handler
from benchmarks.framework import START_S, WORKER, end, planned, watch
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import Workload
from window_consumer import App, Record
from window_consumer.database import Once
from window_consumer.testing.real_postgres import RealPostgres

SLOTS: Final = 16
BATCH: Final = 100
TURNS: Final = 3
_LARGE: Final = "wc_once_large"
_FILL: Final = sa.text(
    "INSERT INTO wc_once_large (group_name, worker, origin, record_id) SELECT 'shop-orders',"
    " 'orders', 'orders:0123456789abcdef', number / 4 || '/' || number"
    " FROM generate_series(1, :count) number"
)
_BATCHES_OF: Final = 25
"""How many times more records run in batches, where each costs less."""


_metadata = sa.MetaData()
_orders = sa.Table(
    "orders",
    _metadata,
    sa.Column("id", sa.Text(), primary_key=True),
    sa.Column("value", sa.LargeBinary()),
)


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


def run_large(topics: Topics, workload: Workload) -> Run:
    """Run with an empty table and with one that is full of ids, in turn, three times."""
    empty: list[float] = []
    full: list[float] = []
    lost = 0
    with _database() as url:
        topic = topics.filled(workload.topic, lambda _: None)
        filled_s = _fill(url, workload.ids)
        for _ in range(TURNS):
            for rates, table in ((full, _LARGE), (empty, "wc_once")):
                run = _one_run(topics, workload, topic, url, "once", table)
                rates.append(run.records_per_s)
                lost += run.lost
    return Run(
        median(full),
        lost=lost,
        ratios={"empty": median(full) / median(empty)},
        notes={"ids": float(workload.ids), "empty_per_s": median(empty), "filled_s": filled_s},
    )


def _fill(url: str, ids: int) -> float:
    """Make the large table; return how many seconds that took."""
    engine = sa.create_engine(url)
    began = time.perf_counter()
    Once(engine, table=_LARGE).tables.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(_FILL, {"count": ids})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"VACUUM ANALYZE {_LARGE}")
    engine.dispose()
    return time.perf_counter() - began


def _one_run(
    topics: Topics, workload: Workload, topic: str, url: str, kind: str, table: str = "wc_once"
) -> Run:
    group = f"wc-bench-{uuid.uuid4().hex[:12]}"
    answer = children.run(
        "once",
        bootstrap=topics.bootstrap,
        topic=topic,
        group=group,
        workload=workload,
        url=url,
        kind=kind,
        table=table,
    )
    complete = topics.committed_equals_end(topic, group)
    topics.forget(group)
    return evolve(cattrs.structure(answer, Run), committed_equals_end=complete)


def run(  # noqa: PLR0913 - what a run is given
    bootstrap: str, topic: str, group: str, workload: Workload, url: str, kind: str, table: str
) -> Any:
    """Handle a topic's records once: a child process."""
    engine = sa.create_engine(url, pool_size=workload.slots)
    with engine.begin() as connection:
        connection.execute(sa.text("TRUNCATE orders, wc_once"))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("CHECKPOINT"))
    app, records = App("benchmarks"), workload.topic.records
    once = Once(engine, table=table) if kind == "once" else None
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


RUNS: Final = {"once": run_once, "once-large": run_large}
"""By the work of the workload."""
