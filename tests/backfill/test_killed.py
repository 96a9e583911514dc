"""A backfill that is killed goes on where it was, and what is recorded does not run again."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from tests.commands import Command, Commands
from tests.pipeline.conftest import INTERPRETED, QUICK
from tests.waiting import wait_until
from window_consumer.testing.real_kafka import RealKafka

RECORDS, CHUNK = 800, 200
DEADLINE_S = 240.0

SHOP = """
import os, time
from pathlib import Path
from window_consumer import App, Record

app = App("shop")

@app.handler("orders", group="shop", concurrency=8)
def charge(record: Record) -> None:
    with open(f"calls-{os.getpid()}", "a") as file:
        file.write(f"{record.partition} {record.offset}\\n")
    if record.value == b"exit" and not Path("exited").exists():
        Path("exited").touch()
        os._exit(7)
    while record.offset >= int(Path("gate").read_text() or 0):
        time.sleep(0.05)
"""

OPEN = 10**9

Places = Counter[tuple[int, int]]


def fill(bootstrap: str, topic: str) -> None:
    """Write the records; the last one ends the process that is called for it first."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        value = b"exit" if number == RECORDS - 1 else b"fine"
        producer.produce(topic, value, b"k%d" % number, partition=number % 2)
    assert producer.flush(DEADLINE_S) == 0


def calls(directory: Path, but: Places | None = None) -> Places:
    """Return how often each record was called; a line that is being written is none yet."""
    texts = (file.read_text() for file in directory.glob("calls-*"))
    lines = (line for text in texts for line in text.splitlines(keepends=True))
    found = Counter((int(p), int(o)) for p, o in (ln.split() for ln in lines if ln[-1] == "\n"))
    return found - (but or Counter())


def begun(directory: Path, offset: int) -> bool:
    """Return whether a record at `offset` or beyond was called."""
    return any(place[1] >= offset for place in calls(directory))


def recorded(directory: Path) -> Places:
    """Return how often each record is in the table."""
    table = DeltaTable(directory / "backfills" / "tables" / "results").to_pyarrow_table()
    pairs = zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
    return Counter(pairs)


def runs(number: str) -> bool:
    """Return whether a process is there, and not only because nobody has asked for its end."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{number}/status").read_text()
    except FileNotFoundError:
        return False


def kill(command: Command) -> None:
    """Kill the driver, and wait until what it has started is gone, too."""
    number = command.process.pid
    children = Path(f"/proc/{number}/task/{number}/children").read_text().split()
    assert children  # Java
    command.signal(signal.SIGKILL)
    command.process.wait()
    wait_until(
        lambda: not any(map(runs, children)), DEADLINE_S, "Java has heard that its driver is gone"
    )


@pytest.mark.slow
def test_a_backfill_that_is_killed_goes_on_where_it_was(
    kafka: RealKafka, make_topic: Callable[..., str], commands: Commands
) -> None:
    """... and one that is stopped, or whose handlers end their process, which Spark tries again."""
    topic = make_topic("orders", 2)
    fill(kafka.bootstrap, topic)
    commands.application(SHOP)
    config = {
        "kafka": {"bootstrap.servers": kafka.bootstrap},
        "workers": {"charge": {"topics": [topic]}},
    }
    commands.configure(config)
    given = ["backfill", "shop:app", "--topic", topic, "--chunk", str(CHUNK)]
    for key, value in (QUICK | INTERPRETED).items():
        given += ["--spark", f"{key}={value}"]
    directory = commands.directory
    gate = directory / "gate"
    gate.write_text("150")  # a chunk has a hundred records of each partition
    first = commands.start(*given)
    first.wait_for(f"{CHUNK} of {RECORDS:,}", timeout_s=DEADLINE_S)
    # What is counted may not be recorded yet, while the first chunk runs.
    wait_until(lambda: begun(directory, 100), DEADLINE_S, "the second chunk runs")
    kill(first)
    before, done = calls(directory), recorded(directory)
    assert done == Counter((partition, offset) for partition in (0, 1) for offset in range(100))
    gate.write_text("250")
    second = commands.start(*given)
    second.wait_for(f"{2 * CHUNK} of {RECORDS:,}", timeout_s=DEADLINE_S)
    # Between two chunks it would end at once.
    wait_until(lambda: begun(directory, 200), DEADLINE_S, "the third chunk runs")
    second.signal(signal.SIGINT)
    gate.write_text(str(OPEN))
    stopped = second.wait(DEADLINE_S)
    assert stopped.code == 130, stopped.said
    assert re.search(rf"\b{RECORDS - 3 * CHUNK:,} offsets\b", stopped.err)
    assert len(recorded(directory)) == 3 * CHUNK  # the chunk that ran has ended
    ended = commands.start(*given).wait(DEADLINE_S)
    assert ended.code == 0, ended.said
    assert "Spark retries" in ended.err
    again = calls(directory, before)
    assert not again.keys() & done.keys()
    table = recorded(directory)
    assert set(table.values()) == {1}
    assert len(table) == RECORDS
    # Each of the two ends of a process lets no more than its chunk run twice; Ctrl-C none.
    twice = sum(count - 1 for count in calls(directory).values())
    assert 0 < twice <= 2 * CHUNK
