"""Child processes: each run gets a fresh one, in the same environment."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import cattrs

from window_consumer.model.errors import RunError

CHECKOUT = Path(__file__).parents[1]

_LONGEST_S = 300.0
_TAIL_CHARS = 2_000


def run(part: str, **arguments: Any) -> Any:
    """Run a part (see ``child``) to its end and return its result.

    Raises RunError with the end of the process's output where it fails.
    """
    with tempfile.TemporaryFile("w+") as said:
        try:
            done = subprocess.run(
                command(part, **arguments),
                cwd=CHECKOUT,
                stdout=subprocess.PIPE,
                stderr=said,
                timeout=_LONGEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise RunError(f"{part} has not ended within {_LONGEST_S:g} s{_tail(said)}") from error
        if done.returncode:
            raise RunError(f"{part} ended with code {done.returncode}{_tail(said)}")
    return json.loads(done.stdout)


def command(part: str, **arguments: Any) -> list[str]:
    """Return the command line of a part."""
    given = json.dumps(cattrs.unstructure(arguments))
    return [sys.executable, "-m", "benchmarks.child", part, given]


def _tail(said: Any) -> str:
    said.seek(0)
    text = said.read().strip()
    return f"; it said:\n{text[-_TAIL_CHARS:]}" if text else ""
