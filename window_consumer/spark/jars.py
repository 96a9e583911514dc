"""The connector jars that Spark's wheel lacks: downloaded once with Maven, checked against a lock.

Maven resolves no dependencies: the lock names every jar, and Spark's wheel has the rest. A jar
whose SHA-256 differs from the lock is never used.
"""

# ruff: noqa: S603 - this module starts Maven

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Final

from attrs import frozen

from window_consumer.model.errors import RunError, UsageError

DIRECTORY_VARIABLE: Final = "WINDOW_CONSUMER_JARS"
_DOWNLOAD_S: Final = 600
_CHUNK: Final = 1024**2


class MissingJarsError(UsageError):
    """Spark's connectors are missing; the message says how to get them."""

    code = "WC171"


class JarsNotFetchedError(RunError):
    """Maven did not download the jars of the lock."""

    code = "WC172"


class UnwritableDirectoryError(UsageError):
    """The jars' directory is not writable."""

    code = "WC173"


@frozen
class Jar:
    """One jar of the lock."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.artifact}-{self.version}.jar"

    def stands(self, directory: Path) -> bool:
        """Return whether it is in the directory, byte for byte."""
        path = directory / self.name
        return path.is_file() and _sha256(path) == self.sha256


def locked() -> tuple[Jar, ...]:
    """Return the jars of the lock."""
    return parsed(files(__package__).joinpath("jars.lock").read_text("utf-8"))


def parsed(text: str) -> tuple[Jar, ...]:
    """Return the jars of a lock's text: ``group:artifact:version sha256`` a line."""
    found = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, sha256 = line.split()
            group, artifact, version = name.split(":")
            found.append(Jar(group, artifact, version, sha256))
    return tuple(found)


def default_directory() -> Path:
    """Return the jars' directory: $WINDOW_CONSUMER_JARS, or a folder in the user's cache."""
    chosen = os.environ.get(DIRECTORY_VARIABLE)
    if chosen:
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "window-consumer" / "jars"


def ready(directory: Path, wanted: Sequence[Jar] | None = None) -> list[Path]:
    """Return the paths of the jars, by default all of the lock.

    Raises MissingJarsError if one is missing or differs.
    """
    wanted = locked() if wanted is None else wanted
    wrong = _missing(directory, wanted)
    if wrong:
        raise MissingJarsError(
            f"{directory} lacks {', '.join(jar.name for jar in wrong)}, or has different files of"
            " these names: `window-consumer pipeline jars` downloads them with Maven"
        )
    return [directory / jar.name for jar in wanted]


def fetch(directory: Path, wanted: Sequence[Jar] | None = None) -> list[Jar]:
    """Download the missing jars, by default of the whole lock; return them.

    Several processes may call at once: one downloads, the others wait. Nothing is written if all
    jars exist. Raises MissingJarsError without Maven, UnwritableDirectoryError, and
    JarsNotFetchedError if the download fails or differs from the lock; then the previous jars stay.
    """
    wanted = locked() if wanted is None else wanted
    if not _missing(directory, wanted):
        return []
    try:
        # No other user may write there, whatever the umask: see ``class_archive``.
        directory.mkdir(parents=True, exist_ok=True, mode=0o755)
        with alone(directory):
            missing = _missing(directory, wanted)
            if missing:
                _download(missing, directory)
            return missing
    except OSError as error:
        raise UnwritableDirectoryError(
            f"cannot write the jars to {directory} ({error}): make room there, or choose another"
            f" directory with --directory, and set ${DIRECTORY_VARIABLE} to it for the commands"
            " that need the jars"
        ) from error


def _missing(directory: Path, wanted: Sequence[Jar]) -> list[Jar]:
    return [jar for jar in wanted if not jar.stands(directory)]


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Hold the lock for changes of the directory."""
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(jars: Sequence[Jar], directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        names = "\n  ".join(f"{jar.group}:{jar.artifact}:{jar.version}" for jar in jars)
        raise MissingJarsError(
            "`mvn` not found: install Maven (Debian: apt-get install maven), or copy these jars"
            f" into {directory} manually:\n  {names}"
        )
    with tempfile.TemporaryDirectory(dir=directory, prefix="download-") as place:
        pom, brought = Path(place, "pom.xml"), Path(place, "jars")
        pom.write_text(_pom(jars), "utf-8")
        command = [maven, "--batch-mode", "--quiet", "--file", str(pom)]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={brought}"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_DOWNLOAD_S
            )
        except subprocess.TimeoutExpired as error:
            raise JarsNotFetchedError(
                f"Maven did not download the jars within {_DOWNLOAD_S} s"
            ) from error
        if done.returncode != 0:
            output = (done.stdout + done.stderr)[-2000:]
            raise JarsNotFetchedError(f"Maven could not download the jars: {output}")
        for jar in jars:
            if not jar.stands(brought):
                raise JarsNotFetchedError(
                    f"the {jar.name} that Maven downloaded does not match the lock (SHA-256"
                    f" {jar.sha256}); nothing was changed"
                )
        for jar in jars:
            (brought / jar.name).replace(directory / jar.name)


def _pom(jars: Sequence[Jar]) -> str:
    """Return a pom with these jars and none of their dependencies."""
    wanted = "".join(
        f"<dependency><groupId>{jar.group}</groupId><artifactId>{jar.artifact}</artifactId>"
        f"<version>{jar.version}</version><exclusions><exclusion><groupId>*</groupId>"
        "<artifactId>*</artifactId></exclusion></exclusions></dependency>"
        for jar in jars
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>window-consumer</groupId><artifactId>pipeline</artifactId><version>1</version>"
        f"<dependencies>{wanted}</dependencies></project>"
    )


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
