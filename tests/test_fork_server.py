"""A forked command behaves like one that a user starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import fork_server
from tests.commands import Commands
from tests.waiting import wait_until

APPLICATION = """
import gc, json, os, sys, threading
from pathlib import Path
from window_consumer import App, Record

main = sys.modules["__main__"]
Path(os.environ["FOUND"]).write_text(json.dumps({
    "arguments": sys.argv,
    "path": sys.path,
    "main": [main.__name__, main.__spec__.name, main.__file__],
    "directory": os.getcwd(),
    "environment": dict(os.environ) | {"FOUND": ""},
    "tests": sorted(name for name in sys.modules if name.startswith("tests")),
    "threads": threading.active_count(),
    "files": len(os.listdir("/proc/self/fd")),
    "signals": [str(signal) for signal in map(__import__("signal").getsignal, (2, 10, 15, 17))],
}))

app = App("shop")

@app.handler("orders", group="shop")
def charge(record: Record) -> None: ...
"""


def found(commands: Commands, *, fresh: bool) -> dict[str, object]:
    path = commands.directory / f"fresh-{fresh}.json"
    given = {"FOUND": str(path), "OF_THIS_TEST": "1"}
    ended = commands.start("check", "shop:app", env=given, fresh=fresh).wait()
    assert ended.code == 0, ended.said
    return dict(json.loads(path.read_text()))


def test_a_forked_command_finds_what_a_fresh_one_finds(commands: Commands) -> None:
    commands.application(APPLICATION)
    commands.configure({"kafka": {"bootstrap.servers": "127.0.0.1:1"}, "workers": {"charge": {}}})
    assert found(commands, fresh=False) == found(commands, fresh=True)


def test_what_is_read_when_python_starts_is_that_of_the_command(commands: Commands) -> None:
    commands.application("import os, sys; print(sys.flags.optimize, os.environ['OF_THIS_TEST'])")
    for level in ("1", "2"):
        given = {"PYTHONOPTIMIZE": level, "OF_THIS_TEST": "me"}
        assert commands.run("check", "shop:app", env=given).out.startswith(f"{level} me\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_ends_a_command_and_is_its_exit_code(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "shop.py").write_text("import time; print('here', flush=True); time.sleep(600)")
    process = fork_server.start(["check", "shop:app"], tmp_path, os.environ)
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        assert process.stdout.readline() == "here\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(number)
        assert process.wait() == process.poll() == -number
        process.send_signal(number)  # to nobody


def test_the_server_ends_with_the_process_that_uses_it(tmp_path: Path) -> None:
    program = f"""
import os
from pathlib import Path
from tests import fork_server

process = fork_server.start(["--version"], Path({str(tmp_path)!r}), os.environ)
(server,) = fork_server._servers.values()
print(server.process.pid, process.wait(), process.stdout.read(), flush=True)
os._exit(0)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    number, code, *_ = ended.stdout.split()
    assert code == "0"
    wait_until(lambda: is_gone(Path("/proc", number, "status")), 60, "the server ends")


def is_gone(status: Path) -> bool:
    try:
        return "\nState:\tZ" in status.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
