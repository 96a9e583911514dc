"""Kills and freezes with ``once``: every effect and every result happens once.

One Kafka and one PostgreSQL serve all variants, each with its own topic, group and database.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import sqlalchemy as sa
from attrs import define, evolve
from confluent_kafka import Consumer, TopicPartition

from benchmarks import children
from benchmarks.framework import START_S
from benchmarks.once_kills_app import (
    ENVIRONMENT,
    SLOTS,
    VARIANTS,
    WORKER,
    Variant,
    app,
    effects,
    is_bad,
    metadata,
    outbox,
)
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import PARTITIONS, TopicSpec, Workload
from window_consumer.database import Once
from window_consumer.model.errors import RunError
from window_consumer.testing.real_kafka import RealKafka
from window_consumer.testing.real_postgres import RealPostgres

_OTHERS_SHARE: Final = 4
"""The variants beside ``records`` have a quarter of its records and of its kills."""
_FREEZES: Final = 3
_REBALANCES: Final = 3
_JOINS_S: Final = 2.0
_END_S: Final = 100.0
"""Longer than any step of a variant takes."""
_READ_S: Final = 30.0
_CHECK_S: Final = 0.05
_SESSION_S: Final = 3
_FROZEN_S: Final = 2.0 * _SESSION_S
_BROKER: Final = {
    "group.consumer.session.timeout.ms": 1_000 * _SESSION_S,
    "group.consumer.heartbeat.interval.ms": 1_000,
    "group.min.session.timeout.ms": 1_000 * _SESSION_S,
}
"""Another member gets the partitions of a killed one after 3 s."""
_CLASSIC: Final = {
    "group.protocol": "classic",
    "session.timeout.ms": 1_000 * _SESSION_S,
    "heartbeat.interval.ms": 500,
}


def run_kills(_topics: Topics, workload: Workload) -> Run:
    """Kill or freeze workers while they write effects and results; redrive, and compare."""
    found: dict[str, Run] = {}
    with (
        tempfile.TemporaryDirectory(prefix="wc-bench-") as folder,
        RealKafka.start(Path(folder, "kafka"), _BROKER, short_lived=False) as kafka,
        RealPostgres.start(Path(folder, "postgres")) as postgres,
    ):
        for variant in VARIANTS.values():
            url = postgres.create_database(f"shop-{variant.name}")
            share = 1 if variant.name == "records" else _OTHERS_SHARE
            spec = evolve(workload.topic, records=workload.topic.records // share)
            scene = Scene(variant, kafka.bootstrap, url, Path(folder), spec)
            found[variant.name] = scene.run(max(1, workload.kills // share))
    notes = ("twice", "invented")
    runs = found.values()
    return Run(
        found["records"].records_per_s,
        lost=sum(run.lost for run in runs),
        duplicates=sum(run.duplicates for run in runs),
        notes={name: sum(run.notes[name] for run in runs) for name in notes},
        variants={name: {"lost": float(run.lost), **run.notes} for name, run in found.items()},
    )


@define
class Scene:
    """One variant: its topic, group and database, and the members that run."""

    variant: Variant
    bootstrap: str
    url: str
    folder: Path
    spec: TopicSpec

    def run(self, kills: int) -> Run:
        """Run it to its end and compare the effects with the expected ones."""
        engine = sa.create_engine(self.url)
        metadata.create_all(engine)
        Once(engine, fenced=self.variant.fenced).tables.metadata.create_all(engine)
        topics = Topics(self.bootstrap)
        for name in (self.topic, self.results, f"{self.group}.{self.topic}.dlq"):
            topics.make(name)
        children.run("write", bootstrap=self.bootstrap, topic=self.topic, spec=self.spec)
        self.file.write_text(json.dumps(self._config()))
        began = time.perf_counter()
        try:
            self._disturb_and_redrive(engine, kills)
            seconds = time.perf_counter() - began
            with engine.connect() as connection:
                there = Counter(connection.scalars(sa.select(effects.c.id)))
        finally:
            engine.dispose()
        wanted = {
            f"{self.topic}/{partition}/{offset}"
            for partition in range(PARTITIONS)
            for offset in range(self.spec.records // PARTITIONS)
        }
        return _judged(wanted, there, _results(self.bootstrap, self.results), seconds)

    @property
    def topic(self) -> str:
        return f"wc-bench-once-{self.variant.name}"

    @property
    def results(self) -> str:
        return f"{self.topic}-results"

    @property
    def group(self) -> str:
        return f"{self.topic}-group"

    @property
    def file(self) -> Path:
        return self.folder / f"{self.variant.name}.yaml"

    def _config(self) -> dict[str, Any]:
        worker: dict[str, Any] = {
            "topics": [self.topic],
            "group": self.group,
            "concurrency": 4 if self.variant.in_children else SLOTS,
            "pool": "processes" if self.variant.in_children else "threads",
            "retry": {"attempts": 1},
            "breaker": {"enabled": False},
        }
        if self.variant.has_levels:
            worker["retry"] = {"attempts": 1, "levels": ["500ms"], "on_failure": "overtake"}
            worker["stall"] = {"after": "1s", "max_abandoned": 1_000}
            worker["ordering"] = "unordered"
            worker["kafka"] = {"consumer": _CLASSIC}
        return {
            "kafka": {"bootstrap.servers": self.bootstrap},
            "outbox": {"database": self.url},
            "workers": {WORKER: worker},
        }

    def _disturb_and_redrive(self, engine: sa.Engine, kills: int) -> None:
        records = self.spec.records
        bad = PARTITIONS * sum(map(is_bad, range(records // PARTITIONS)))
        members = [self._member()]
        try:
            if self.variant.freezes:
                members.append(self._member())
                self._freeze(engine, members)
            else:
                self._kill(engine, members, kills)
            _until(lambda: _count(engine, effects) >= records - bad, "all that do not fail")
            _stop(members)
            self._redrive()
            members.append(self._member(fixed=True))
            _until(lambda: _count(engine, effects) >= records, "those that were redriven")
            _until(lambda: _count(engine, outbox.table) == 0, "an empty outbox")
            _stop(members)
        finally:
            for member in members:
                member.kill()
                member.wait()

    def _kill(self, engine: sa.Engine, members: list[subprocess.Popen[bytes]], kills: int) -> None:
        for kill in range(kills):
            share = self.spec.records * (kill + 1) // (kills + 4)
            _until(lambda share=share: _count(engine, effects) >= share, f"effects, kill {kill}")  # type: ignore[misc] # of a loop
            # Another member comes and goes; with levels it also reads copies of the first one's.
            joins = self.variant.has_levels or kill % max(1, kills // _REBALANCES) == 1
            if joins:
                members.append(self._member())
                time.sleep(_JOINS_S)
            members[0].kill()
            members[0].wait()
            members[0] = self._member()
            if joins:
                _stop([members.pop()])

    def _freeze(self, engine: sa.Engine, members: list[subprocess.Popen[bytes]]) -> None:
        for number in range(_FREEZES):
            share = self.spec.records * (number + 1) // (_FREEZES + 4)
            _until(lambda share=share: _count(engine, effects) >= share, f"effects, {number}")  # type: ignore[misc] # of a loop
            frozen = members[number % 2]
            frozen.send_signal(signal.SIGSTOP)
            time.sleep(_FROZEN_S)
            frozen.send_signal(signal.SIGCONT)

    def _member(self, *, fixed: bool = False) -> subprocess.Popen[bytes]:
        given = {
            "variant": self.variant.name,
            "url": self.url,
            "results": self.results,
            "fixed": fixed,
        }
        command = children.command("once_member", file=str(self.file))
        environment = {**os.environ, ENVIRONMENT: json.dumps(given)}
        return subprocess.Popen(command, cwd=children.CHECKOUT, env=environment)

    def _redrive(self) -> None:
        command = [sys.executable, "-m", "window_consumer", "dlq", "redrive", "-c", str(self.file)]
        subprocess.run(command, cwd=children.CHECKOUT, check=True, timeout=_END_S)


def run_member(file: str) -> None:
    """Run a worker until it is killed: a child process."""
    running = app.start(Path(file), start_timeout=START_S)
    signal.signal(signal.SIGTERM, lambda *_: running.stop())
    running.wait()


def _stop(members: list[subprocess.Popen[bytes]]) -> None:
    for member in members:
        member.terminate()
    while members:
        members.pop().wait(_END_S)


def _count(engine: sa.Engine, table: sa.Table) -> int:
    with engine.connect() as connection:
        return int(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)


def _results(bootstrap: str, topic: str) -> Counter[str]:
    """Return how many results each record has; those with the same ``wc-id`` count once."""
    ends = Topics(bootstrap).log_ends(topic)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "wc-bench-reader"})
    found: dict[bytes, str] = {}
    read = 0
    try:
        consumer.assign([TopicPartition(topic, each, 0) for each in ends])
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
        notes={"twice": float(twice), "invented": float(invented), "seconds": seconds},
    )


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.perf_counter() + _END_S
    while not holds():
        if time.perf_counter() > deadline:
            raise RunError(f"{what}: not within {_END_S:g} s")
        time.sleep(_CHECK_S)


RUNS: Final = {"once-kills": run_kills}
"""By the work of the workload."""
