"""What kills leave of the threading models: how it is counted, without Kafka."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.peers.killing import MODELS, finished_with_kills, judged
from benchmarks.peers.roster import PEERS
from tests.benchmarks.test_peers_runs import trial
from window_consumer.model.errors import RunError

RECORDS = 12

PROGRAM = """
import sys, time
from pathlib import Path
file, records, repeated = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
done = len(file.read_bytes()) // 4 if file.exists() else 0
with file.open("ab", buffering=0) as out:
    for number in range(done and done - repeated, records):
        if not done and number == records // 2:
            time.sleep(600)  # until it is killed
        out.write(number.to_bytes(4, "big"))
"""


def finished(folder: Path, repeated: int) -> Counter[int]:
    file = folder / "finished"
    given = str(file), str(RECORDS), str(repeated)
    command = [sys.executable, "-c", PROGRAM, *given]
    return finished_with_kills(command, file, RECORDS, kills=1)


def test_what_a_killed_process_had_finished_is_counted(tmp_path: Path) -> None:
    found = finished(tmp_path, repeated=2)
    assert set(found) == set(range(RECORDS))
    assert judged(RECORDS, found) == {"lost": 0, "twice": 2}


def test_what_a_restart_leaves_out_is_lost(tmp_path: Path) -> None:
    found = finished(tmp_path, repeated=-3)
    assert judged(RECORDS, found) == {"lost": 3, "twice": 0}


def test_a_process_that_fails_is_an_error(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    with pytest.raises(RunError):
        finished_with_kills(command, tmp_path / "finished", RECORDS, kills=1)


def test_a_run_that_will_be_killed_writes_each_finished_record_at_once(tmp_path: Path) -> None:
    trial(tmp_path, finished=tmp_path / "finished")
    assert (tmp_path / "finished").read_bytes() == b"".join(
        number.to_bytes(4) for number in range(20)
    )


def test_the_models_are_peers_of_the_table_whose_programs_run_in_this_environment() -> None:
    environments = [PEERS[name].environment for name in MODELS.values()]
    assert environments == ["confluent-kafka"] * 3 + ["ours"]
