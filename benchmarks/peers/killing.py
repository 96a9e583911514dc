"""Hand-written threading models: how fast they are, and what they lose when killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.children import CHECKOUT
from benchmarks.peers.contents import Contents
from benchmarks.peers.filling import filled
from benchmarks.peers.roster import PEERS
from benchmarks.peers.turns import take_turn
from benchmarks.peers.workloads import PeerWorkload
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import Workload
from window_consumer.model.errors import RunError

MODELS: Final = {
    "consumer_per_thread": "consumer-per-thread",
    "threads_per_partition": "threads-per-partition",
    "shared_offsets": "shared-offsets",
    "window": "window-unordered",
}
"""The peers by their names in figures; the last is ours."""

_NUMBER_BYTES: Final = 4
_RATE_S: Final = 5.0
_QUIET_S: Final = 15.0
"""A process has ended this long after its last record: a group needs 6 s to notice a kill."""
_LONGEST_S: Final = 240.0
_CHECK_S: Final = 0.05


def run(topics: Topics, workload: Workload) -> Run:
    """Measure each model's rate, then kill it again and again; compare what it has finished."""
    contents = Contents(
        workload.topic.records,
        keys=workload.topic.keys,
        longest_us=round(2e6 * workload.wait_s),
        slow_one_in=workload.topic.slow_one_in,
        slow_us=round(1e6 * workload.slow_wait_s),
    )
    filled(topics, contents, lambda _: None)
    trial = PeerWorkload(workload.name, workload.what, contents, workload.slots, _RATE_S)
    found: dict[str, dict[str, float]] = {}
    for name, peer in MODELS.items():
        rate = take_turn(PEERS[peer], _command(peer), trial, topics, timed=True).records_per_s
        finished = _finished_with_kills(peer, topics, trial, workload.kills)
        found[name] = {"records_s": rate or 0.0, **judged(contents.records, finished)}
    notes = {
        f"{name}_{figure}": value
        for name, figures in found.items()
        for figure, value in figures.items()
    }
    ours = found["window"]
    return Run(ours["records_s"], lost=round(ours["lost"]), notes=notes, variants={**found})


def judged(records: int, finished: Counter[int]) -> dict[str, float]:
    """Count the records that were never finished, and how often one finished again."""
    return {
        "lost": float(records - len(finished)),
        "twice": float(finished.total() - len(finished)),
    }


def _command(peer: str) -> list[str]:
    return [sys.executable, "-m", f"benchmarks.peers.runners.{PEERS[peer].runner}"]


def _finished_with_kills(
    peer: str, topics: Topics, trial: PeerWorkload, kills: int
) -> Counter[int]:
    group = f"wc-peers-{uuid.uuid4().hex[:12]}"
    with tempfile.TemporaryDirectory(prefix="wc-peers-") as folder:
        file = Path(folder, "finished")
        given: Mapping[str, object] = {
            "bootstrap": topics.bootstrap,
            "topic": trial.contents.name,
            "group": group,
            "records": trial.contents.records,
            "partitions": trial.contents.partitions,
            "slots": trial.slots,
            "cap_s": _LONGEST_S,
            "timed": "yes",
            "journal": Path(folder, "journal"),
            "finished": file,
            **PEERS[peer].options,
        }
        command = [*_command(peer), *(f"{key}={value}" for key, value in given.items())]
        finished = finished_with_kills(command, file, trial.contents.records, kills)
    topics.forget(group)
    return finished


def finished_with_kills(
    command: Sequence[str], file: Path, records: int, kills: int
) -> Counter[int]:
    """Run a program that adds the number of each finished record to a file, and kill it.

    Each process is killed after its share of the records, the last one when it finishes no more,
    unless it has ended by itself. Raises RunError if one fails or takes too long.
    """
    share = records // (kills + 1)
    for _ in range(kills):
        wanted = _count(file) + share
        with _killed_at_the_end(command) as process:
            _wait(process, file, lambda wanted=wanted: _count(file) >= wanted)  # type: ignore[misc] # a default that binds
    with _killed_at_the_end(command) as process:
        _wait(process, file, lambda: False)
    written = file.read_bytes()
    return Counter(
        int.from_bytes(written[at : at + _NUMBER_BYTES], "big")
        for at in range(0, len(written), _NUMBER_BYTES)
    )


@contextmanager
def _killed_at_the_end(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command, cwd=CHECKOUT, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(process: subprocess.Popen[bytes], file: Path, holds: Callable[[], bool]) -> None:
    """Wait until a condition holds, or no record has finished for a while."""
    began = changed_at = time.monotonic()
    before = _count(file)
    while not holds():
        now, count = time.monotonic(), _count(file)
        if count != before:
            before, changed_at = count, now
        elif now - changed_at > _QUIET_S:
            return
        if (code := process.poll()) == 0:
            return
        if code is not None:
            raise RunError(f"{process.args!r} ended with code {code}")
        if now - began > _LONGEST_S:
            raise RunError(f"{process.args!r} was not at its end after {_LONGEST_S:g} s")
        time.sleep(_CHECK_S)


def _count(file: Path) -> int:
    return file.stat().st_size // _NUMBER_BYTES if file.exists() else 0


RUNS: Mapping[str, Callable[[Topics, Workload], Run]] = {"hand-written": run}
