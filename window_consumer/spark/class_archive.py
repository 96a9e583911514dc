"""An archive of the classes that Spark loads, which saves each session on this machine seconds.

Java reads and verifies tens of thousands of classes from Spark's jars before the first row. With an
archive it maps them into memory instead (dynamic class data sharing, JEP 350). Java checks that the
archive matches the jars, and ignores it otherwise.

Java executes the archive's content without further checks. So an archive that another user may have
written is not used: the file and its directory must belong to this user or to root, and no other
user may have write access.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from window_consumer.model.errors import RunError
from window_consumer.model.log_events import LogEvent
from window_consumer.spark import java
from window_consumer.spark.jars import alone

_WARMUP: Final = "window_consumer.spark.warmup"
_MAKING_S: Final = 600
_MOST_TEXT: Final = 1000
_MODE: Final = 0o644
"""The archive's mode, whatever the umask: a group-writable one is not trusted."""

_LOGGER: Final = logging.getLogger(__name__)
_SILENT: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"


class NoArchiveError(RunError):
    """The archive could not be created; sessions start without it."""


def options(jars: Sequence[Path]) -> str:
    """Return the Java options that use the archive of a directory's jars; "" without one."""
    path = made(jars)
    return "" if path is None else f'"-XX:SharedArchiveFile={path}" {_SILENT}'


def writing(path: str) -> str:
    """Return the Java options that write the archive at exit."""
    return f'"-XX:ArchiveClassesAtExit={path}" {_SILENT}'


def made(jars: Sequence[Path]) -> Path | None:
    """Return the archive of a directory's jars, for the Java and Spark used here.

    None if it is missing or incomplete: a truncated archive crashes Java. None with a warning if
    others may have written it. Raises NoJavaError.
    """
    if not jars or not (found := _all(jars[0].parent)):
        return None
    whose = _whose(jars)
    for each in found:
        try:
            if each.name != _name(whose, each):
                continue
            if (doubt := _doubt(each.parent) or _doubt(each)) is None:
                return each
            _LOGGER.warning(
                "%s: Spark starts without it, a few seconds slower",
                doubt,
                extra={"event": LogEvent.CLASS_ARCHIVE_SKIPPED},
            )
        except FileNotFoundError:
            continue  # another process is replacing it
    return None


def _doubt(path: Path) -> str | None:
    """Return why others may have written a path, and what to do; None if they cannot."""
    found = path.stat() if path.is_dir() else path.lstat()
    if found.st_uid not in {os.geteuid(), 0}:
        return f"{path} belongs to another user and is not trusted: remove it, or chown it"
    if stat.S_ISLNK(found.st_mode):
        return f"{path} is a symbolic link and is not trusted: remove it"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{path} is writable by others and is not trusted: chmod go-w '{path}'"
    return None


def make(jars: Sequence[Path], *, anew: bool = False) -> Path:
    """Create the archive if it is missing, or ``anew``; return its path.

    Takes about a minute: it starts Spark once and does the same as commands. Earlier archives
    beside it are removed. Several processes may call this at once: one creates the archive, the
    others wait. Raises NoArchiveError if Java cannot create it or others may write to the
    directory, and NoJavaError.
    """
    directory = jars[0].parent
    if (doubt := _doubt(directory)) is not None:
        raise NoArchiveError(doubt)
    with alone(directory):
        there = None if anew else made(jars)
        if there is not None:
            return there
        with tempfile.TemporaryDirectory(dir=directory, prefix="archive-") as place:
            written = _written(Path(place, "classes.jsa"), jars)
            written.chmod(_MODE)
            for earlier in _all(directory):  # processes that have it mapped keep it
                earlier.unlink(missing_ok=True)
            return written.replace(directory / _name(_whose(jars), written))


def _written(path: Path, jars: Sequence[Path]) -> Path:
    command = [sys.executable, "-m", _WARMUP, str(path), *map(str, jars)]
    try:
        # The pipe stays open until Java closes its end, which is after Python's.
        done = subprocess.run(  # noqa: S603 - Spark, with our own program
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=_MAKING_S,
        )
    except subprocess.TimeoutExpired as error:
        raise NoArchiveError(f"Java did not create the archive within {_MAKING_S} s") from error
    if done.returncode != 0 or not path.is_file():
        output = done.stdout.decode(errors="replace")[-_MOST_TEXT:]
        raise NoArchiveError(
            f"Java did not create the archive, exit code {done.returncode}: {output}"
        )
    return path


def _all(directory: Path) -> list[Path]:
    return list(directory.glob("classes-*.jsa"))


def _name(whose: str, archive: Path) -> str:
    return f"classes-{whose}-{archive.stat().st_size}.jsa"


def _whose(jars: Sequence[Path]) -> str:
    parts = [java.version_text(java.path()), _spark(), *(jar.name for jar in jars)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _spark() -> str:
    """Return the identity of this Spark: its path and its main jar.

    The jar's modification time is included: Java rejects classes of an earlier installation.
    """
    home = os.environ.get("SPARK_HOME")
    if home is None:
        spec = find_spec("pyspark")
        home = "" if spec is None or spec.origin is None else str(Path(spec.origin).parent)
    mains = sorted(Path(home, "jars").glob("spark-core_*.jar"))
    listed = [f"{each.name} of {each.stat().st_mtime_ns}" for each in mains]
    return "\0".join([home, *listed])
