"""A real PostgreSQL for tests: it starts, survives a kill with what was committed, and ends."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from window_consumer.model.errors import RunError
from window_consumer.testing.real_postgres import RealPostgres

DEADLINE_S = 30.0


def is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_what_was_committed_outlives_a_kill(
    postgres: RealPostgres, postgres_directory: Path
) -> None:
    with RealPostgres.start(postgres_directory) as server:
        server.query("CREATE TABLE t AS SELECT 7 AS n")
        pids = [server.pid]
        server.kill()
        pids.append(server.pid)
        server.restart()
        pids.append(server.pid)
        assert pids[1] is None
        assert len({*pids}) == 3
        assert server.query("SELECT n FROM t") == "7"
    assert postgres.port != server.port


def test_databases_are_apart(postgres: RealPostgres, database: str) -> None:
    name = database.rpartition("/")[2]
    postgres.query("CREATE TABLE only_here (n int)", name)
    assert postgres.query("SELECT count(*) FROM only_here", name) == "0"
    with pytest.raises(RunError):
        postgres.query("SELECT count(*) FROM only_here")


def test_another_run_of_pytest_changes_nothing(
    postgres: RealPostgres, tmp_path_factory: pytest.TempPathFactory
) -> None:
    of_all_runs = [
        each
        for each in tmp_path_factory.getbasetemp().parents
        if each.name.startswith("pytest-of-")
    ]
    for each in of_all_runs:
        each.chmod(0o700)  # as pytest does when it starts
    # It reads a file by its whole path.
    assert postgres.query("SELECT system_identifier > 0 FROM pg_control_system()") == "t"


def test_it_ends_with_the_process_that_started_it(postgres_directory: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path\n"
        "from window_consumer.testing.real_postgres import RealPostgres\n"
        "print(RealPostgres.start(Path(sys.argv[1])).pid, flush=True)\n"
        "os._exit(1)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(postgres_directory)],
        capture_output=True,
        text=True,
        check=False,
    )
    pid = int(ended.stdout)
    deadline = time.monotonic() + DEADLINE_S
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)
