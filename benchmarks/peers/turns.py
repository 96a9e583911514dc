"""One run of one peer: starts its program, limits its time, reads its result, and checks it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from benchmarks.children import CHECKOUT
from benchmarks.peers.contents import Contents, fill
from benchmarks.peers.journal import Journal
from benchmarks.peers.roster import Peer
from benchmarks.peers.runners.trial import FIRST_S, STOP_S
from benchmarks.peers.verdict import Verdict, judge
from benchmarks.peers.workloads import PeerWorkload
from benchmarks.topics import Topics
from window_consumer.kafka.cluster.groups import committed_offsets
from window_consumer.model.errors import RunError

_SPARE_S = 20.0
"""Time for the start of the process and for writing the journal, beyond the run itself."""

ONE_BY_ONE_S = 3.0
"""The cap for peers that handle one record after another, where the handler waits."""

_GRACE_S = 3.0
"""How long after its process's end a group's offsets may still move."""

_CHECK_S = 0.02
_TAIL_CHARS = 1_500


@frozen
class Turn:
    """The result of one run."""

    timed: bool
    records_per_s: float | None
    verdict: Verdict
    cpu_s: float
    """Of the whole process, its start included."""
    max_rss_mb: float
    stop_s: float
    """How long its graceful stop took."""
    problem: str
    """Problems that the runner reported."""
    versions: Mapping[str, str]


@frozen
class _Said:
    answer: Mapping[str, Any]
    cpu_s: float
    max_rss_mb: float


def take_turn(
    peer: Peer, command: Sequence[str], workload: PeerWorkload, topics: Topics, *, timed: bool
) -> Turn:
    """Run a peer once on a filled topic. Raises RunError where its program fails."""
    group = f"wc-peers-{uuid.uuid4().hex[:12]}"
    contents, cap_s = workload.contents, _cap_s(peer, workload)
    with tempfile.TemporaryDirectory(prefix="wc-peers-") as directory:
        place = Path(directory)
        arguments = {
            "bootstrap": topics.bootstrap,
            "topic": contents.name,
            "group": group,
            "records": contents.records,
            "partitions": contents.partitions,
            "slots": workload.slots,
            "cap_s": cap_s,
            "timed": "yes" if timed else "no",
            "journal": place / "journal",
            **peer.options,
        }
        given = [f"{key}={value}" for key, value in arguments.items()]
        longest_s = FIRST_S + cap_s + STOP_S + _SPARE_S
        said = _run(peer.name, [*command, *given], place, longest_s)
        journal = Journal.read(place / "journal")
    filled = fill(contents)
    deadline_s = _GRACE_S if len(set(journal.numbers)) == contents.records else 0.0
    committed = _committed(said.answer, topics, contents, group, deadline_s)
    topics.forget(group)
    verdict = judge(journal, filled, committed)
    return Turn(
        timed=timed,
        records_per_s=_rate(verdict, journal, said.answer),
        verdict=verdict,
        cpu_s=said.cpu_s,
        max_rss_mb=said.max_rss_mb,
        stop_s=said.answer["stop_s"],
        problem=said.answer["problem"],
        versions=said.answer["versions"],
    )


def _cap_s(peer: Peer, workload: PeerWorkload) -> float:
    """Return a peer's time limit: one that handles records one by one shows its rate soon."""
    one_by_one = workload.waits and peer.slots in {"one", "partitions"}
    return min(workload.cap_s, ONE_BY_ONE_S) if one_by_one else workload.cap_s


def _rate(verdict: Verdict, journal: Journal, answer: Mapping[str, Any]) -> float | None:
    """Return the rate from first begin to last end, or as the runner saw it."""
    count = len(journal.numbers) if journal.timed else int(answer["seen"])
    seconds = verdict.seconds if journal.timed else float(answer["seconds"])
    return count / seconds if seconds else None


def _run(name: str, command: Sequence[str], place: Path, longest_s: float) -> _Said:
    """Run a program to its end and return its last output and its usage."""
    out, err = place / "out", place / "err"
    with out.open("wb") as said, err.open("wb") as complained:
        process = subprocess.Popen(
            command,
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=complained,
            start_new_session=True,
        )
        code, usage = _wait(process, longest_s)
    lines = [line for line in out.read_text("utf-8", "replace").splitlines() if line[:1] == "{"]
    if code or not lines:
        why = "was killed, it took too long" if code is None else f"ended with code {code}"
        tail = err.read_text("utf-8", "replace").strip()[-_TAIL_CHARS:]
        raise RunError(f"{name} {why}{'; it said: ' if tail else ''}{tail}")
    return _Said(json.loads(lines[-1]), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def _wait(process: subprocess.Popen[bytes], longest_s: float) -> tuple[int | None, Any]:
    """Return the exit code and usage; None: it was killed after ``longest_s``."""
    deadline = time.monotonic() + longest_s
    late = False
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            # Popen has not seen the end itself, and would wait for it once more.
            process.returncode = os.waitstatus_to_exitcode(status)
            return None if late else process.returncode, usage
        if not late and time.monotonic() > deadline:
            late = True
            os.killpg(process.pid, signal.SIGKILL)
        time.sleep(_CHECK_S)


def _committed(
    answer: Mapping[str, Any], topics: Topics, contents: Contents, group: str, deadline_s: float
) -> Mapping[int, int]:
    """Return the committed offsets, once they are complete, or after ``deadline_s``.

    A share group has no committed offsets: there the runner reports them.
    """
    if "committed" in answer:
        return {int(partition): offset for partition, offset in answer["committed"].items()}
    client = {"bootstrap.servers": topics.bootstrap}
    everything = dict(enumerate(fill(contents).log_ends))
    deadline = time.monotonic() + deadline_s
    while True:
        committed = committed_offsets(client, group, contents.name)
        if committed == everything or time.monotonic() >= deadline:
            return committed
        time.sleep(_CHECK_S)
