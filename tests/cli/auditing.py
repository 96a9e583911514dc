"""A shop whose producer and worker are killed midway, and the audit's result.

python -m tests.cli.auditing --records 1000000 --kafka HOST:PORT    # the promised figure
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random

from attrs import define, frozen
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from window_consumer.audit.balance import effective
from window_consumer.audit.count import AuditCount, CountTier, decode

ORDERS = "audited-orders"
RETRY, DLQ = f"audited.{ORDERS}.retry.100ms", f"audited.{ORDERS}.dlq"
COUNTS = "audited-counts"
GROUP = "audited"
ENDS = 3
"""How many workers may be needed to ship the rest, on a busy machine."""

SHOP = """
from window_consumer import App, Record

app = App("shop")


@app.handler("audited-orders", group="audited", retry={"attempts": 1, "levels": ["100ms"]})
def charge(order: Record) -> None:
    number = int(order.value)
    if number % 1000 == 7 or (number % 100 == 3 and "retry" not in order.topic):
        raise ValueError(number)
"""

PRODUCER = """
import sys
import time
from pathlib import Path

from window_consumer import TracedProducer
from window_consumer.audit.process_audit import Audit, AuditSettings
from window_consumer.audit.consumer import AuditRules

bootstrap, directory, first, stop, per_s = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
rules = AuditRules(bucket_ms=3_600_000, ids=True)
with Audit(AuditSettings(directory=Path(directory), app="web", rules=rules)) as audit:
    producer = TracedProducer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5},
        trace=None,
        watchers=[audit.producer("web-orders")],
    )
    begun = time.monotonic()
    for number in range(first, stop):
        while True:
            try:
                producer.produce("audited-orders", b"%d" % number)
            except BufferError:
                producer.poll(0.1)
            else:
                break
        if number % 100 == 0:
            producer.poll(0)
            print(number, flush=True)
            ahead = (number - first) / per_s - (time.monotonic() - begun)
            if ahead > 0:
                time.sleep(ahead)
    producer.flush()
print("all", flush=True)
"""


@frozen
class Books:
    """The counts, and the records in the topics."""

    counts: tuple[AuditCount, ...]
    ends: Mapping[str, int]

    def sums(self) -> Counter[tuple[str, CountTier]]:
        """Return the effective counts by topic and tier."""
        found: Counter[tuple[str, CountTier]] = Counter()
        for count in effective(self.counts).counts:
            found[count.topic, count.tier] += count.count
        return found

    def problems(self) -> Iterator[str]:
        """Yield every difference of at least one record."""
        if still_open := effective(self.counts).open:
            yield f"nobody has counted {still_open}"
        sums = self.sums()
        for topic, end in self.ends.items():
            produced, unknown = sums[topic, CountTier.PRODUCED], sums[topic, CountTier.UNKNOWN]
            if not produced <= end <= produced + unknown:
                yield f"{topic}: {produced} written and {unknown} unknown, there are {end}"
            consumed = sum(
                count
                for (name, tier), count in sums.items()
                if name == topic and tier not in {CountTier.PRODUCED, CountTier.UNKNOWN}
            )
            if topic != DLQ and consumed != end:
                yield f"{topic}: {consumed} consumed, there are {end}"
        if any(count.lost for count in self.counts):
            yield "counts were lost"


@define
class Shop:
    """Topics, files and processes of one run."""

    bootstrap: str
    directory: Path
    records: int
    per_s: int

    def configure(self) -> None:
        """Write the application and its configuration."""
        (self.directory / "shop.py").write_text(SHOP)
        (self.directory / "producer.py").write_text(PRODUCER)
        settings = {
            "kafka": {"bootstrap.servers": self.bootstrap},
            "workers": {"charge": {"commit_interval": "100ms"}},
            "audit": {
                "enabled": True,
                "directory": "audit",
                "bucket": "1h",
                "ids": True,
                "topic": COUNTS,
            },
        }
        (self.directory / "workers.yaml").write_text(json.dumps(settings))

    def worker(self) -> subprocess.Popen[str]:
        """Start the worker."""
        return self._start("-m", "window_consumer", "run", "-c", "workers.yaml", "shop:app")

    def producer(self, first: int) -> subprocess.Popen[str]:
        """Start the producer."""
        numbers = map(str, (first, self.records, self.per_s))
        return self._start("producer.py", self.bootstrap, "audit", *numbers)

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        paths = os.pathsep.join([str(self.directory), *filter(None, sys.path)])
        with (self.directory / "said.txt").open("a") as said:
            return subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.directory,
                env={**os.environ, "PYTHONPATH": paths},
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )

    def run(self, kills: int, seed: int) -> Books:
        """Produce and consume everything, killing worker and producer in turn; return the books."""
        rng = Random(seed)
        self.configure()
        wait = self.records / self.per_s / (kills + 1)
        number, worker, producer = 0, self.worker(), self.producer(0)
        for turn in range(kills):
            number = self._watch(producer, wait * (0.5 + rng.random()), number)
            if turn % 2:
                kill(worker)
                worker = self.worker()
            else:
                kill(producer)
                producer = self.producer(number)
        self._watch(producer, float("inf"), number)
        end(producer)
        self.drain()
        for _ in range(ENDS):
            worker.send_signal(signal.SIGTERM)
            end(worker)
            if not any((self.directory / "audit").iterdir()):
                break
            # Counts that a worker cannot ship in its last seconds are left for the next one.
            worker = self.worker()
            assert worker.stdout is not None
            while "reads" not in worker.stdout.readline():
                pass
        return Books(tuple(self.counts()), self.ends())

    @staticmethod
    def _watch(producer: subprocess.Popen[str], seconds: float, number: int) -> int:
        """Wait for a time, or for the producer's end; return how far it has come."""
        assert producer.stdout is not None
        until = time.monotonic() + seconds
        for line in producer.stdout:
            if line.strip() == "all" or time.monotonic() > until:
                break
            number = int(line)
        return number

    def drain(self) -> None:
        """Wait until the group has finished all of it."""
        while self.ends(committed=True) != self.ends(but=DLQ):
            time.sleep(0.2)

    def ends(self, *, committed: bool = False, but: str = "") -> dict[str, int]:
        """Return how many records were written to each topic, or are committed."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": GROUP})
        found = {}
        for topic in (ORDERS, RETRY, DLQ):
            if topic == but or (committed and topic == DLQ):
                continue
            partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
            names = [TopicPartition(topic, each) for each in partitions]
            if committed:
                offsets = [max(0, each.offset) for each in consumer.committed(names, timeout=30)]
            else:
                offsets = [consumer.get_watermark_offsets(each, timeout=30)[1] for each in names]
            found[topic] = sum(offsets)
        consumer.close()
        return found

    def counts(self) -> Iterator[AuditCount]:
        """Read the topic with the counts."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "reader"})
        partitions = consumer.list_topics(COUNTS, timeout=30).topics[COUNTS].partitions
        names = [TopicPartition(COUNTS, each, 0) for each in partitions]
        left = {each.partition: consumer.get_watermark_offsets(each)[1] for each in names}
        consumer.assign(names)
        while any(left.values()):
            for message in consumer.consume(500, 0.2):
                assert message.error() is None, message.error()
                yield from decode(message.value() or b"")
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                if offset + 1 >= left[partition]:
                    left[partition] = 0
        consumer.close()


def kill(process: subprocess.Popen[str]) -> None:
    """End a process without a word."""
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def end(process: subprocess.Popen[str]) -> None:
    """Wait until a process has ended well."""
    process.communicate(timeout=120)
    assert process.returncode == 0


def main(say: Callable[[str], object] = sys.stdout.write) -> int:
    """Run it on an existing Kafka."""
    parser = argparse.ArgumentParser(prog="python -m tests.cli.auditing")
    parser.add_argument("--kafka", required=True)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--per-second", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    admin = AdminClient({"bootstrap.servers": options.kafka})
    topics = [NewTopic(each, 4, 1) for each in (ORDERS, RETRY, DLQ, COUNTS)]
    for topic, made in admin.create_topics(topics).items():
        say(f"making {topic}: {made.exception() or 'done'}\n")
    with tempfile.TemporaryDirectory() as directory:
        shop = Shop(options.kafka, Path(directory), options.records, options.per_second)
        books = shop.run(options.kills, options.seed)
        say((Path(directory) / "said.txt").read_text()[-2000:])
    for (topic, tier), count in sorted(books.sums().items()):
        say(f"{topic:<28}{tier:<16}{count:>12,}\n")
    replaced = sum(each.count for each in effective(books.counts).replaced)
    say(f"lie there: {books.ends}; replaced: {replaced:,}\n")
    problems = list(books.problems())
    say("".join(f"{each}\n" for each in problems) or "balanced to the record\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
