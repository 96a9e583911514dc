"""The outbox loses nothing while relays are killed and frozen and the broker restarts.

Several writers share keys; each row has the next number of its key. Some rows are too large for the
topic: only they are given up.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks import children
from benchmarks.outbox_place import OutboxPlace, place_with_outbox, until
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import PARTITIONS, Workload
from window_consumer.model.errors import RunError
from window_consumer.testing.real_kafka import RealKafka

_LONGEST_S: Final = 150.0
"""From the first row to the last ack; a busy machine needs three times as long as a quiet one."""

_STOP_S: Final = 20.0
_READ_S: Final = 20.0
_RELAYS: Final = 4
_WRITERS: Final = 4
_KEYS: Final = 50
_PAUSE_S: Final = 0.004
_FROZEN_S: Final = 7.0
"""Longer than a relay's lock lasts without it."""
_FREEZE_AT: Final = (2, 5, 8)
"""After these kills another relay is frozen."""
_LIMIT_BYTES: Final = 20_000
_TOO_LARGE: Final = 30_000
_TOO_LARGE_IN: Final = 200
"""One row in this many is too large."""
_OWN_TOPIC: Final = "wc-bench-outbox-kills"


def relay_kills(_topics: Topics, workload: Workload) -> Run:
    """Write rows while relays are killed with -9, one after the other, and the broker restarts."""
    with (
        tempfile.TemporaryDirectory(prefix="wc-bench-") as directory,
        RealKafka.start(Path(directory), short_lived=False) as kafka,
        place_with_outbox() as place,
    ):
        topics = Topics(kafka.bootstrap)
        topics.make(_OWN_TOPIC, config={"max.message.bytes": str(_LIMIT_BYTES)})
        AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=10)
        began = time.perf_counter()
        deadline = began + _LONGEST_S
        with _relays(
            children.command(
                "outbox_relay",
                url=place.url,
                bootstrap=kafka.bootstrap,
                outbox={"on_refused": "skip"},
            )
        ) as relays:
            ids = _write_while_killing(place, kafka, workload, relays, deadline)
            until(lambda: place.waiting() == 0, deadline - time.perf_counter())
        seconds = time.perf_counter() - began
        return _judged(_read(kafka.bootstrap), ids, len(ids) / seconds)


class _Relays:
    """Processes that relay, each replaced when it is killed."""

    def __init__(self, command: Sequence[str]):
        self._command = command
        self.freezes = 0
        self._waking: list[threading.Timer] = []
        self._processes = [self._start() for _ in range(_RELAYS)]

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, cwd=children.CHECKOUT)

    def kill(self, number: int) -> None:
        """Kill one with -9 and start another in its place."""
        self._processes[number].kill()
        self._processes[number].wait()
        self._processes[number] = self._start()

    def freeze(self, number: int) -> None:
        """Stop one with SIGSTOP, and continue it when another has taken over."""
        process = self._processes[number]
        process.send_signal(signal.SIGSTOP)
        self.freezes += 1
        waking = threading.Timer(_FROZEN_S, process.send_signal, (signal.SIGCONT,))
        waking.start()
        self._waking.append(waking)

    def wake(self) -> None:
        """Wait until all are awake."""
        for waking in self._waking:
            waking.join()

    def stop(self, number: signal.Signals) -> None:
        """End all."""
        for process in self._processes:
            process.send_signal(number)
        for process in self._processes:
            process.wait(_STOP_S)


@contextmanager
def _relays(command: Sequence[str]) -> Iterator[_Relays]:
    relays = _Relays(command)
    try:
        yield relays
    except BaseException:
        relays.stop(signal.SIGKILL)
        raise
    relays.stop(signal.SIGTERM)


def _write_while_killing(
    place: OutboxPlace, kafka: RealKafka, workload: Workload, relays: _Relays, deadline: float
) -> dict[str, tuple[bytes, int]]:
    """Return key and number of each committed row that Kafka takes, by its id."""
    keys = sa.Table(
        "bench_keys",
        sa.MetaData(),
        sa.Column("key", sa.LargeBinary(), primary_key=True),
        sa.Column("number", sa.Integer(), nullable=False),
    )
    keys.create(place.engine)
    with place.engine.begin() as connection:
        names = [b"%d" % number for number in range(_KEYS)]
        connection.execute(keys.insert(), [{"key": key, "number": 0} for key in names])
    following = keys.update().values(number=keys.c.number + 1).returning(keys.c.number)
    ids: dict[str, tuple[bytes, int]] = {}
    written = [0] * _WRITERS
    each = workload.topic.records // _WRITERS

    def write(writer: int) -> None:
        drawn = random.Random(writer)
        for _ in range(each):
            key = drawn.choice(names)
            is_too_large = not drawn.randrange(_TOO_LARGE_IN)
            more = b" " + os.urandom(_TOO_LARGE) if is_too_large else b""
            with place.engine.begin() as connection:
                # The key's row is locked until the commit: that is the order of its numbers.
                number = connection.execute(following.where(keys.c.key == key)).scalar_one()
                row_id = place.outbox.add(connection, _OWN_TOPIC, key, b"%d" % number + more)
            written[writer] += 1
            if not is_too_large:
                ids[str(row_id)] = (key, number)
            time.sleep(_PAUSE_S)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(_WRITERS)]
    for writer in writers:
        writer.start()
    for kill in range(workload.kills):
        goal = workload.topic.records * (kill + 1) // (workload.kills + 2)
        until(lambda goal=goal: sum(written) >= goal, deadline - time.perf_counter())  # type: ignore[misc] # of a loop
        relays.kill(kill % _RELAYS)
        if kill in _FREEZE_AT:
            relays.freeze((kill + 2) % _RELAYS)
        if kill == workload.kills // 2:
            kafka.restart()
    for writer in writers:
        writer.join()
    relays.wake()
    return ids


def _read(bootstrap: str) -> list[tuple[str, bytes, int]]:
    """Return id, key and number of all records, each partition in its order."""
    ends = Topics(bootstrap).log_ends(_OWN_TOPIC)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "wc-bench-reader"})
    found: list[tuple[str, bytes, int]] = []
    try:
        consumer.assign([TopicPartition(_OWN_TOPIC, each, 0) for each in range(PARTITIONS)])
        deadline = time.perf_counter() + _READ_S
        while len(found) < sum(ends.values()) and time.perf_counter() < deadline:
            for message in consumer.consume(10_000, 0.5):
                row_id = dict(message.headers() or ())["wc-id"].decode()  # type: ignore[union-attr] # ours
                found.append((row_id, message.key() or b"", int(message.value() or b"")))
    finally:
        consumer.close()
    return found


def _judged(
    found: list[tuple[str, bytes, int]], ids: dict[str, tuple[bytes, int]], rate: float
) -> Run:
    if strangers := {row_id for row_id, _, _ in found} - ids.keys():
        raise RunError(f"{len(strangers)} records have ids that no row has")
    times = Counter(row_id for row_id, _, _ in found)
    last: dict[bytes, int] = {}
    firsts: defaultdict[bytes, list[int]] = defaultdict(list)
    seen: set[str] = set()
    for row_id, key, number in found:
        if ids[row_id] != (key, number):
            raise RunError(f"record {row_id} is not what was committed")
        last[key] = number
        if row_id not in seen:
            seen.add(row_id)
            firsts[key].append(number)
    violations = sum(
        later < earlier for numbers in firsts.values() for earlier, later in pairwise(numbers)
    )
    return Run(
        rate,
        lost=len(ids.keys() - times.keys()),
        order_violations=violations,
        notes={
            "twice": float(sum(count - 1 for count in times.values())),
            "stale_last_values": float(
                sum(number < max(firsts[key]) for key, number in last.items())
            ),
        },
    )


def run_relay(url: str, bootstrap: str, outbox: dict[str, Any] | None = None) -> dict[str, Any]:
    """Relay until SIGTERM, as `window-consumer outbox run` does: a child process."""
    from window_consumer.cli.main import main  # noqa: PLC0415 - a process of its own

    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "workers.yaml")
        config = {
            "kafka": {"bootstrap.servers": bootstrap},
            "outbox": {"database": url, **(outbox or {})},
        }
        file.write_text(json.dumps(config))
        main(["outbox", "run", "-c", str(file)])
    return {}


RUNS: Final = {"outbox-kills": relay_kills}
"""By the work of the workload."""
