"""A real run for the README's animation: one call hangs, the process is killed, and starts again.

``python -m docs.crash_recording`` writes docs/recordings/crash.json, in some 20 seconds. Workers
are processes of their own, started with ``window-consumer run`` against an embedded broker. Nothing
is taken from the framework's own figures: the handler writes when its calls began and ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import cattrs
from attrs import frozen

from window_consumer import App, Record
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
from window_consumer.model.errors import RunError

ROOT = Path(__file__).parents[1]
RECORDING = Path(__file__).parent / "recordings" / "crash.json"
APPLICATION = "docs.crash_recording:app"
TOPIC = "orders"
PARTITIONS = 4
HANGING = (1, 2)
"""Partition and offset of the record whose first call never returns."""

COMMIT_INTERVAL_S = 0.1
_DEADLINE_S = 60.0
_CHECK_S = 0.01


@frozen
class RecordedCall:
    """One call of the handler; times are seconds since the first call began."""

    process: int
    """1 until the kill, 2 after it."""
    partition: int
    offset: int
    began_s: float
    ended_s: float | None
    """None: it was running when its process was killed."""

    @property
    def place(self) -> tuple[int, int]:
        """Partition and offset of its record."""
        return self.partition, self.offset


@frozen
class Crash:
    """A run with a kill, as its handlers saw it."""

    records: int
    """How many each partition has."""
    slots: int
    """How many calls ran at once."""
    killed_s: float
    calls: Sequence[RecordedCall]

    def of_process(self, process: int) -> Sequence[RecordedCall]:
        """Return the calls of one of the two processes, in the order in which they began."""
        return sorted(
            (call for call in self.calls if call.process == process), key=lambda call: call.began_s
        )

    @property
    def finished_before(self) -> set[tuple[int, int]]:
        """The records that were finished when the process was killed."""
        return {call.place for call in self.of_process(1) if call.ended_s is not None}

    @property
    def interrupted(self) -> set[tuple[int, int]]:
        """The records whose calls were running then."""
        return {call.place for call in self.of_process(1) if call.ended_s is None}

    @property
    def repeated(self) -> set[tuple[int, int]]:
        """The records that were called in both processes."""
        first, second = ({call.place for call in self.of_process(each)} for each in (1, 2))
        return first & second

    @property
    def finished(self) -> set[tuple[int, int]]:
        """The records that were finished in the end."""
        return {call.place for call in self.calls if call.ended_s is not None}

    def save(self, path: Path) -> None:
        """Write the run to a file, a call on each line."""
        given = cattrs.unstructure(self)
        calls = ",\n  ".join(json.dumps(call) for call in given.pop("calls"))
        head = json.dumps(given)[:-1]
        path.write_text(f'{head}, "calls": [\n  {calls}\n]}}\n', "utf-8")

    @classmethod
    def load(cls, path: Path) -> Crash:
        """Read a run from a file."""
        return cattrs.structure(json.loads(path.read_text("utf-8")), cls)


# The code of the worker's processes, configured by their environment.

app = App("shop")


@app.handler(TOPIC, group="shop-charge", ordering="key", retry={"on_failure": "overtake"})
def charge(order: Record) -> None:
    """Take a while, and record begin and end. The first call of one order does not return."""
    place = order.partition, order.offset
    _note("began", *place)
    hangs = place == HANGING and os.environ["CRASH_PROCESS"] == "1"
    time.sleep(600 if hangs else float(os.environ["CRASH_CALL_S"]))
    _note("ended", *place)


def _note(event: str, *place: int) -> None:
    """Append a line to the journal in one write, which a kill cannot cut."""
    line = json.dumps([event, int(os.environ["CRASH_PROCESS"]), *place, time.monotonic()])
    with Path(os.environ["CRASH_JOURNAL"]).open("ab", buffering=0) as journal:
        journal.write(f"{line}\n".encode())


def record(*, records: int, slots: int, call_s: float, kill_after_s: float) -> Crash:
    """Run and kill a worker; run it again until all records are finished.

    The kill comes ``kill_after_s`` after the first call began, or a little later: in the middle
    between two rounds of calls, if there is such a moment, when what has finished has been
    committed. Raises RunError if something takes too long.
    """
    with TemporaryDirectory() as directory, EmbeddedBroker(topics={TOPIC: PARTITIONS}) as broker:
        journal = Path(directory) / "journal"
        journal.touch()
        broker.fill(TOPIC, _orders(records))
        config = Path(directory) / "workers.yaml"
        config.write_text(
            json.dumps(
                {
                    "kafka": _kafka(broker),
                    "topics": {"create": False},
                    "workers": {
                        "charge": {
                            "concurrency": slots,
                            "commit_interval": f"{COMMIT_INTERVAL_S * 1000:.0f}ms",
                            # The embedded broker cannot create the topic of dead letters.
                            "retry": {"attempts": 1, "when_spent": "stop"},
                        }
                    },
                }
            ),
            "utf-8",
        )
        environment = {"CRASH_JOURNAL": str(journal), "CRASH_CALL_S": str(call_s)}

        def is_time() -> bool:
            notes, now = _notes(journal), time.monotonic()
            ends = [note[4] for note in notes if note[0] == "ended"]
            if len(ends) <= slots or now - notes[0][4] < kill_after_s:
                return False
            between = call_s * 0.45 <= now - max(ends) <= call_s * 0.7
            return between or now - notes[0][4] > kill_after_s + 3 * call_s

        with _worker(config, {**environment, "CRASH_PROCESS": "1"}) as first:
            _wait_until(is_time)
            first.send_signal(signal.SIGKILL)
            killed = time.monotonic()
        with _worker(config, {**environment, "CRASH_PROCESS": "2"}):
            _wait_until(lambda: _count_finished(journal) == records * PARTITIONS)
        return _crash(_notes(journal), records, slots, killed)


def _kafka(broker: EmbeddedBroker) -> dict[str, object]:
    waits = broker.client_settings()["fetch.wait.max.ms"]
    return {"bootstrap.servers": broker.bootstrap, "consumer": {"fetch.wait.max.ms": waits}}


def _orders(records: int) -> Iterator[NewRecord]:
    for offset in range(records):
        for partition in range(PARTITIONS):
            key = f"customer-{offset * PARTITIONS + partition}".encode()
            yield NewRecord(b"{}", key=key, partition=partition)


@contextmanager
def _worker(config: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    command = ["-m", "window_consumer", "run", APPLICATION, "-c", str(config)]
    with subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, *command], cwd=ROOT, env={**os.environ, **environment}
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(_DEADLINE_S)


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not holds():
        if time.monotonic() > deadline:
            raise RunError(f"it took more than {_DEADLINE_S:g} s")
        time.sleep(_CHECK_S)


def _notes(journal: Path) -> list[tuple[str, int, int, int, float]]:
    return [json.loads(line) for line in journal.read_text("utf-8").splitlines()]


def _count_finished(journal: Path) -> int:
    return len({(note[2], note[3]) for note in _notes(journal) if note[0] == "ended"})


def _crash(
    notes: Sequence[tuple[str, int, int, int, float]], records: int, slots: int, killed: float
) -> Crash:
    start = notes[0][4]
    ends = {(note[1], note[2], note[3]): note[4] for note in notes if note[0] == "ended"}
    calls = []
    for event, process, partition, offset, at in notes:
        if event == "began":
            end = ends.get((process, partition, offset))
            ended = None if end is None else round(end - start, 3)
            calls.append(RecordedCall(process, partition, offset, round(at - start, 3), ended))
    return Crash(records, slots, round(killed - start, 3), calls)


if __name__ == "__main__":
    RECORDING.parent.mkdir(exist_ok=True)
    record(records=24, slots=8, call_s=0.5, kill_after_s=3.4).save(RECORDING)
