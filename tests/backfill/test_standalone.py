"""A backfill on a cluster, one of whose executors is lost while its tasks run handlers."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from tests.commands import Commands
from tests.integration.members import wait_until
from tests.pipeline.standalone import ENVIRONMENT, PATIENCE_S, Cluster, standalone
from window_consumer.testing.real_kafka import RealKafka

RECORDS, CHUNK = 600, 200

SHOP = """
import os
import time
from pathlib import Path
from window_consumer import App, Record

app = App("shop")
here = Path({directory!r})
(here / f"from-{{os.getpid()}}").write_text(__file__)

@app.handler("orders", group="shop", concurrency=8)
def charge(record: Record) -> None:
    with open(here / f"calls-{{os.getpid()}}", "a") as file:
        file.write(f"{{record.partition}} {{record.offset}}\\n")
    while record.offset >= int((here / "gate").read_text() or 0):
        time.sleep(0.05)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with standalone(tmp_path) as cluster:
        yield cluster


def fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, b"fine", b"k%d" % number, partition=number % 2)
    assert producer.flush(60) == 0


def calls(directory: Path) -> dict[str, Counter[tuple[int, int]]]:
    """Return how often each process has called each record."""
    return {
        file.name: Counter(
            (int(partition), int(offset))
            for partition, offset in map(str.split, file.read_text().splitlines())
        )
        for file in directory.glob("calls-*")
    }


@pytest.mark.slow
def test_the_tasks_of_an_executor_that_is_lost_run_again_and_nothing_else(
    cluster: Cluster,
    kafka: RealKafka,
    make_topic: Callable[..., str],
    commands: Commands,
    tmp_path: Path,
) -> None:
    topic = make_topic("orders", 2)
    fill(kafka.bootstrap, topic)
    commands.application(SHOP.format(directory=str(tmp_path)))
    kafka_config = {"bootstrap.servers": kafka.bootstrap}
    commands.configure({"kafka": kafka_config, "workers": {"charge": {"topics": [topic]}}})
    gate = tmp_path / "gate"
    gate.write_text("150")  # in the middle of the second chunk
    given = ["backfill", "shop:app", "--topic", topic, "--chunk", str(CHUNK)]
    given += ["--master", cluster.master, "--py-files", "shop.py"]
    for key, value in cluster.properties.items():
        given += ["--spark", f"{key}={value}"]
    backfill = commands.start(*given, env=ENVIRONMENT)

    def both_run() -> bool:
        assert backfill.process.poll() is None, backfill.said
        begun = [max(offset for _, offset in each) for each in calls(tmp_path).values() if each]
        return sum(offset >= 150 for offset in begun) == 2

    wait_until(both_run, PATIENCE_S, "a task of the second chunk runs on both executors")
    os.kill(cluster.executors()[0], signal.SIGKILL)
    backfill.wait_for("Spark tries them again", timeout_s=PATIENCE_S)
    gate.write_text(str(RECORDS))
    ended = backfill.wait(PATIENCE_S)
    assert ended.code == 0, ended.said
    table = DeltaTable(tmp_path / "backfills" / "tables" / "results").to_pyarrow_table()
    rows = Counter(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    everything = {(partition, offset) for partition in (0, 1) for offset in range(RECORDS // 2)}
    assert rows == Counter(everything)
    called = sum(calls(tmp_path).values(), Counter[tuple[int, int]]())
    assert called.keys() == everything
    twice = {place for place, count in called.items() if count > 1}
    # A chunk has a hundred records of each partition, and one task had those of one.
    assert twice
    assert twice < {(place, offset) for place in (0, 1) for offset in range(100, 200)}
    assert len({partition for partition, _ in twice}) == 1
    imported = {file.read_text() for file in tmp_path.glob("from-*")}
    brought = {each for each in imported if each.startswith(f"{tmp_path}/worker-")}
    assert imported - brought == {f"{tmp_path}/shop.py"}  # the driver's
    assert len(brought) >= 2
