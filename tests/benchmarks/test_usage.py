"""What a benchmark says of memory: the pages that there are, each once."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from benchmarks.usage import Peak

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")

MB = 2**20
HELD = 150 * MB
_SHARES = f"""
import os, sys
held = b"x" * {HELD}
for _ in range(3):
    if os.fork() == 0:
        sys.stdin.read()
        os._exit(0)
print("ready", flush=True)
sys.stdin.read()
"""


def test_pages_that_processes_share_count_once() -> None:
    with Peak() as peak:
        process = subprocess.Popen(
            [sys.executable, "-c", _SHARES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        until = time.monotonic() + 60
        while peak.memory_mb < HELD / MB:
            assert time.monotonic() < until, f"{peak.memory_mb} MB of {HELD / MB} were seen"
            time.sleep(0.1)
        process.stdin.close()
        process.wait()
        process.stdout.close()
    assert HELD / MB <= peak.memory_mb < 2 * HELD / MB
