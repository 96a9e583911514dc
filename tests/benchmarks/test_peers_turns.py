from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from benchmarks.peers.contents import Contents, fill
from benchmarks.peers.measuring import _turns
from benchmarks.peers.roster import PEERS
from benchmarks.peers.turns import ONE_BY_ONE_S, Turn, take_turn
from benchmarks.peers.workloads import PeerWorkload
from benchmarks.topics import Topics
from tests.golden_texts import Golden
from window_consumer.model.errors import RunError
from window_consumer.testing.real_kafka_settings import free_addresses

CONTENTS = Contents(40, keys=4, shortest_us=10, longest_us=10)

# It handles nothing: it notes that record n began after n ms and took one, and says what it was
# options as its problem.
PROGRAM = """
import json, sys
from pathlib import Path
from benchmarks.peers.journal import Journal
options = dict(each.split("=", 1) for each in sys.argv[1:])
count, ms = int(options["records"]), 1_000_000
times = [(n, (2 * n + 1) * ms, (2 * n + 2) * ms, (2 * n + 3) * ms) for n in range(count)]
timed = options["timed"] == "yes"
journal = Journal.of(times) if timed else Journal.untimed(range(count))
journal.write(Path(options["journal"]))
print("a line of the peer's own")
print(json.dumps({"seconds": 0.5, "seen": count - 10, "stop_s": 0.25, "versions": {"it": "1.0"},
    "problem": json.dumps(options), "committed": json.loads(options["committed"])}))
"""


def workload(contents: Contents = CONTENTS) -> PeerWorkload:
    return PeerWorkload("keyed", "", contents, slots=7, cap_s=60.0)


def turn(peer: str, *, timed: bool = True, program: str = PROGRAM) -> Turn:
    everything = json.dumps(dict(enumerate(fill(CONTENTS).log_ends)))
    command = [sys.executable, "-c", program, f"committed={everything}"]
    (nobody,) = free_addresses(1)
    return take_turn(PEERS[peer], command, workload(), Topics(nobody, deadline_s=0.1), timed=timed)


def reported(found: Turn) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(found.problem)
    return answer


def test_a_turn_is_what_the_checker_says_of_the_journal() -> None:
    found = turn("window-key")
    assert found.verdict.complete
    assert (found.verdict.lost, found.verdict.uncommitted) == (0, 0)
    assert found.records_per_s == pytest.approx(40 / 0.079)
    assert (found.verdict.p50_ms, found.stop_s, found.versions) == (2.0, 0.25, {"it": "1.0"})
    assert found.cpu_s > 0
    assert found.max_rss_mb > 1


def test_the_rate_of_an_untimed_turn_is_what_the_runner_saw_from_look_to_look() -> None:
    assert turn("window-key", timed=False).records_per_s == pytest.approx(30 / 0.5)


def test_a_runner_learns_the_workload_and_the_peers_options() -> None:
    given = reported(turn("window-key"))
    assert (given["slots"], given["records"], given["ordering"]) == ("7", "40", "key")
    assert float(given["cap_s"]) == 60.0


def test_a_peer_that_waits_one_by_one_gets_less_time() -> None:
    assert float(reported(turn("confluent-loop"))["cap_s"]) == ONE_BY_ONE_S


def test_a_runner_that_fails_is_reported_with_what_it_said(golden: Golden) -> None:
    with golden.raises(RunError):
        turn("window-key", program="import sys; print('no luck', file=sys.stderr); sys.exit(3)")


@pytest.mark.parametrize(
    ("contents", "kinds"),
    [(CONTENTS, [True, True]), (Contents(40, keys=4), [True, False, False])],
    ids=["waits", "does nothing"],
)
def test_where_the_handler_does_nothing_the_rate_comes_from_runs_that_do_not_note(
    contents: Contents, kinds: list[bool]
) -> None:
    (nobody,) = free_addresses(1)
    command = [sys.executable, "-c", PROGRAM, "committed={}"]
    found, failed = _turns(
        PEERS["window-key"], command, workload(contents), Topics(nobody, deadline_s=0.1), runs=2
    )
    assert [each.timed for each in found] == kinds
    assert failed == ""
