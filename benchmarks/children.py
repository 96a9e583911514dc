"""Child processes: each run gets a fresh one, in the same environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import cattrs

from window_consumer.model.errors import RunError

CHECKOUT = Path(__file__).parents[1]

_LONGEST_S = 300.0
_LONGEST_OF = {"breaker_scene": 500.0}
"""One scene has an outage of five minutes."""

_TAIL_CHARS = 2_000


def run(part: str, **arguments: Any) -> Any:
    """Run a part (see ``child``) of this checkout to its end and return its result.

    Raises RunError with the end of the process's output where it fails.
    """
    return run_in(CHECKOUT, part, **arguments)


def run_in(checkout: Path, part: str, **arguments: Any) -> Any:
    """Run a part of a checkout, see ``run``; its packages are those of this interpreter."""
    longest_s = _LONGEST_OF.get(part, _LONGEST_S)
    with tempfile.TemporaryFile("w+") as output:
        try:
            done = subprocess.run(
                command(part, **arguments),
                cwd=checkout,
                env={**os.environ, "PYTHONPATH": str(checkout)},
                stdout=subprocess.PIPE,
                stderr=output,
                timeout=longest_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise RunError(f"{part} has not ended within {longest_s:g} s{_tail(output)}") from error
        if done.returncode:
            raise RunError(f"{part} ended with code {done.returncode}{_tail(output)}")
    return json.loads(done.stdout)


def command(part: str, **arguments: Any) -> list[str]:
    """Return the command line of a part."""
    given = json.dumps(cattrs.unstructure(arguments))
    return [sys.executable, "-m", "benchmarks.child", part, given]


def _tail(output: Any) -> str:
    output.seek(0)
    text = output.read().strip()
    return f"; it said:\n{text[-_TAIL_CHARS:]}" if text else ""
