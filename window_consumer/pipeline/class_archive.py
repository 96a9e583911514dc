"""An archive of the classes that Spark loads, which spares each session on this machine seconds.

Java reads tens of thousands of classes from Spark's jars, and checks them, before the first row. An
archive of them is mapped into memory instead (dynamic class data sharing, JEP 350). Java itself
looks whether the archive is of these jars, and goes on without it where it is not.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from window_consumer.model.errors import RunError
from window_consumer.pipeline import java
from window_consumer.pipeline.jars import alone

_REHEARSAL: Final = "window_consumer.pipeline.rehearsal"
_MAKING_S: Final = 600
_MOST_TEXT: Final = 1000
_SILENT: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"


class NoArchiveError(RunError):
    """The archive could not be made; sessions start without it."""


def options(jars: Sequence[Path]) -> str:
    """Return the options with which Java uses the archive of a directory's jars; none without."""
    if not jars or not _made(jars[0].parent) or not (path := path_of(jars)).is_file():
        return ""
    return f'"-XX:SharedArchiveFile={path}" {_SILENT}'


def made_at(path: str) -> str:
    """Return the options with which Java writes the archive when it ends."""
    return f'"-XX:ArchiveClassesAtExit={path}" {_SILENT}'


def path_of(jars: Sequence[Path]) -> Path:
    """Return where the archive lies of these jars, for the Java and the Spark that are used here.

    Raises NoJavaError.
    """
    said = [java.version_text(java.path()), _spark(), *(jar.name for jar in jars)]
    name = hashlib.sha256("\0".join(said).encode()).hexdigest()[:12]
    return jars[0].parent / f"classes-{name}.jsa"


def make(jars: Sequence[Path], *, anew: bool = False) -> Path:
    """Make the archive where it is not there, or ``anew``; return its path.

    Takes about a minute: Spark is started once, and does what commands do. Earlier ones beside it
    are removed. Several processes may call at once: one makes it, the others wait. Raises
    NoArchiveError where Java cannot make it, and NoJavaError.
    """
    path = path_of(jars)
    with alone(path.parent):
        if anew or not path.is_file():
            with tempfile.TemporaryDirectory(dir=path.parent, prefix="archive-") as place:
                made = _written(Path(place, path.name), jars)
                for earlier in _made(path.parent):
                    earlier.unlink(missing_ok=True)
                # Whoever has the earlier one mapped keeps it.
                made.replace(path)
    return path


def _written(path: Path, jars: Sequence[Path]) -> Path:
    command = [sys.executable, "-m", _REHEARSAL, str(path), *map(str, jars)]
    try:
        # It ends when Java has closed its end of the pipe, too: Python's end comes earlier.
        done = subprocess.run(  # noqa: S603 - Spark, with our own program
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=_MAKING_S,
        )
    except subprocess.TimeoutExpired as error:
        raise NoArchiveError(f"Java made no archive within {_MAKING_S} s") from error
    if done.returncode != 0 or not path.is_file():
        said = done.stdout.decode(errors="replace")[-_MOST_TEXT:]
        raise NoArchiveError(f"Java made no archive, it ended with {done.returncode}: {said}")
    return path


def _made(directory: Path) -> list[Path]:
    return list(directory.glob("classes-*.jsa"))


def _spark() -> str:
    """Return which Spark it is: where it lies, which its version is part of or changes with."""
    home = os.environ.get("SPARK_HOME")
    if home is None:
        spec = find_spec("pyspark")
        home = "" if spec is None or spec.origin is None else str(Path(spec.origin).parent)
    listed = sorted(each.name for each in Path(home, "jars").glob("spark-core_*.jar"))
    return "\0".join([home, *listed])
