"""Apache Kafka's jars, fetched once with Maven, and the archive of their classes."""

# ruff: noqa: S603 - this module starts Java and Maven

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from window_consumer.model.errors import RunError

KAFKA_VERSION = "4.3.0"
JAVA_AT_LEAST = 17
DIRECTORY_VARIABLE = "WINDOW_CONSUMER_KAFKA_DIR"

_ARTIFACT = "kafka_2.13"
_SLF4J_VERSION = "1.7.36"
_NAME = f"{_ARTIFACT}-{KAFKA_VERSION}"
_DOWNLOAD_S = 600
_UNFINISHED = "download-"
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>window-consumer</groupId>
  <artifactId>kafka-for-tests</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>{_ARTIFACT}</artifactId>
      <version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>{_SLF4J_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


class KafkaUnavailableError(RunError):
    """A real Kafka is not available on this machine; the message says what is missing."""

    code = "WC190"


def default_directory() -> Path:
    """Return the jars' directory: $WINDOW_CONSUMER_KAFKA_DIR, or .kafka in the checkout."""
    chosen = os.environ.get(DIRECTORY_VARIABLE)
    if chosen:
        return Path(chosen)
    checkout = Path(__file__).parents[2]
    root = checkout if (checkout / "pyproject.toml").is_file() else Path.cwd()
    return root / ".kafka"


def find_java() -> str:
    """Return the java program; raises KafkaUnavailableError if it is missing or too old."""
    java = shutil.which("java")
    if java is None:
        raise KafkaUnavailableError(f"no `java` found: Kafka needs Java {JAVA_AT_LEAST} or later")
    answer = _version_text(java)
    found = re.search(r'version "(\d+)', answer)
    if found is None or int(found[1]) < JAVA_AT_LEAST:
        raise KafkaUnavailableError(
            f"{java} is too old: Kafka needs Java {JAVA_AT_LEAST} or later, this is"
            f" {answer.strip()!r}"
        )
    return java


@cache
def _version_text(java: str) -> str:
    return subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr


def fetch_jars(directory: Path) -> Path:
    """Return the folder with all of Kafka's jars, downloading them the first time.

    Several processes may call at once: one downloads, the others wait. An interrupted download is
    repeated. Raises KafkaUnavailableError without Maven, or if the download fails.
    """
    jars = directory / _NAME
    directory.mkdir(parents=True, exist_ok=True)
    with _locked(directory / "lock"):
        if not jars.is_dir():
            _download(jars)
    return jars


def archive_of(jars: Path, java: str) -> Path:
    """Return where the archive of the jars' classes is, if there is one; each Java has its own.

    With an archive a short-lived Kafka starts in half of the processor time (JEP 350). Java ignores
    it if the jars have changed. ``python -m tests.parts`` makes it.
    """
    whose = hashlib.sha256(_version_text(java).encode()).hexdigest()[:12]
    return jars.with_name(f"{jars.name}-{whose}.jsa")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(jars: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailableError(f"no `mvn` found: Maven fetches Kafka {KAFKA_VERSION}")
    for interrupted in jars.parent.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(interrupted)
    with tempfile.TemporaryDirectory(dir=jars.parent, prefix=_UNFINISHED) as place:
        pom, unfinished = Path(place, "pom.xml"), Path(place, "jars")
        pom.write_text(_POM)
        command = [maven, "--batch-mode", "--quiet", "--file", str(pom)]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={unfinished}"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_DOWNLOAD_S
            )
        except subprocess.TimeoutExpired as error:
            raise KafkaUnavailableError(
                f"Maven did not fetch Kafka {KAFKA_VERSION} within {_DOWNLOAD_S} s"
            ) from error
        if done.returncode != 0 or not (unfinished / f"{_NAME}.jar").is_file():
            said = (done.stdout + done.stderr)[-2000:]
            raise KafkaUnavailableError(f"Maven could not fetch Kafka {KAFKA_VERSION}: {said}")
        unfinished.rename(jars)
