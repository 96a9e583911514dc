"""Installs missing software that tests use: ``python -m tests.parts``.

Debian's Chromium, promtool, PostgreSQL, Go, Node.js, zsh, fish and javac, Apache Kafka's jars,
with the archive of their classes, Amazon's client for JavaScript, faust, Spring Kafka, Spark's
connectors with theirs. A part that may not be installed here is named, and the tests that need it
are skipped; with CI set it is an error, and the exit code is 1.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests import kafka_archive
from window_consumer.model.errors import WindowConsumerError
from window_consumer.spark import class_archive, jars, java
from window_consumer.testing import real_kafka_jars

PACKAGES = {
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    "prometheus": ("promtool",),
    "postgresql": ("pg_ctlcluster", "initdb"),
    "pgbouncer": ("pgbouncer",),
    "golang-go": ("go",),
    "nodejs": ("node",),
    "npm": ("npm",),
    "zsh": ("zsh",),
    "fish": ("fish",),
    "default-jdk-headless": ("javac",),
}
"""Debian packages, each with programs of which one suffices."""


JAVASCRIPT_VARIABLE = "WINDOW_CONSUMER_JAVASCRIPT"


class PartMissingError(WindowConsumerError):
    """A part is missing and cannot be installed here; the message says what to do."""


def packages() -> None:
    """Install missing packages if this user may."""
    missing = [name for name, programs in PACKAGES.items() if not any(map(shutil.which, programs))]
    if not missing:
        return
    advice = f"apt-get install {' '.join(missing)}"
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise PartMissingError(f"run `{advice}`, or its like, as root")
    options = ["-yqq", "--no-install-recommends"]
    for command in (["update", "-qq"], ["install", *options, *missing]):
        _apt_get(command, advice)


def _apt_get(command: Sequence[str], advice: str) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    ended = subprocess.run(
        ["apt-get", *command], env=environment, capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        raise PartMissingError(f"`{advice}` failed: {(ended.stdout + ended.stderr)[-2000:]}")


def kafka() -> None:
    """Fetch Apache Kafka."""
    real_kafka_jars.find_java()
    real_kafka_jars.fetch_jars(real_kafka_jars.default_directory())


def kafka_classes() -> None:
    """Make the archive of classes that Kafka starts from."""
    kafka_archive.make()


def javascript_directory() -> Path:
    """Return where Amazon's client for JavaScript is, or will be."""
    chosen = os.environ.get(JAVASCRIPT_VARIABLE)
    return Path(chosen) if chosen else Path(__file__).parents[1] / ".javascript"


def javascript() -> None:
    """Fetch Amazon's client for JavaScript, in the pinned versions."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise PartMissingError("install Node.js and npm")
    directory = javascript_directory()
    lock = Path(__file__).parent / "sqs" / "javascript" / "package-lock.json"
    fetched = directory / "node_modules" / ".fetched"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as only_one:
        fcntl.flock(only_one, fcntl.LOCK_EX)
        if fetched.is_file() and fetched.read_bytes() == lock.read_bytes():
            return
        for name in ("package.json", lock.name):
            shutil.copyfile(lock.with_name(name), directory / name)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        ended = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            raise PartMissingError(f"`{' '.join(command)}` failed: {ended.stderr[-2000:]}")
        shutil.copyfile(lock, fetched)


TAKEOVERS = Path(__file__).parent / "docs" / "takeovers"


def cached(name: str) -> Path:
    """Return a part's folder in the user's cache, where Spark's connectors are as well."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "window-consumer" / name


def faust_directory() -> Path:
    """Return where faust is, or will be: the only folder on the path of a Python that runs it.

    Each version of Python has its own, as it cannot load what is compiled for another.
    """
    return cached(f"faust-{sys.implementation.cache_tag}")


def faust() -> None:
    """Install faust in the pinned versions, apart from the packages of our tests."""
    directory, wanted = faust_directory(), TAKEOVERS / "faust.txt"
    installed = directory / ".installed"
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_suffix(".lock").open("w") as only_one:
        fcntl.flock(only_one, fcntl.LOCK_EX)
        if installed.is_file() and installed.read_bytes() == wanted.read_bytes():
            return
        shutil.rmtree(directory, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command = [*pip, "--no-deps", "--target", str(directory), "--requirement", str(wanted)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            raise PartMissingError(f"`{' '.join(command)}` failed: {ended.stderr[-2000:]}")
        shutil.copyfile(wanted, installed)


def spring_jars() -> list[Path]:
    """Return Spring Kafka's jars; fetch them if they are missing."""
    wanted = jars.parsed((TAKEOVERS / "spring.lock").read_text())
    jars.fetch(cached("spring"), wanted)
    return jars.ready(cached("spring"), wanted)


def spring() -> None:
    """Fetch Spring Kafka."""
    real_kafka_jars.find_java()
    if shutil.which("javac") is None:
        raise PartMissingError("install a JDK: its `javac` compiles the application")
    spring_jars()


def spark() -> None:
    """Fetch Spark's connectors."""
    java.check()
    jars.fetch(jars.default_directory())


def archive() -> None:
    """Create the class archive that Spark starts from."""
    class_archive.make(jars.ready(jars.default_directory()))


SKIPPED = "tests that need it are skipped"
PARTS: Sequence[tuple[str, Callable[[], None], str]] = (
    ("Chromium, promtool, PostgreSQL, Go, Node.js, zsh, fish and javac", packages, SKIPPED),
    ("Apache Kafka", kafka, SKIPPED),
    ("Kafka's archive of classes", kafka_classes, "its tests take longer"),
    ("Amazon's client for JavaScript", javascript, SKIPPED),
    ("faust", faust, SKIPPED),
    ("Spring Kafka", spring, SKIPPED),
    ("Spark's connectors", spark, SKIPPED),
    ("Spark's archive of classes", archive, "its tests take longer"),
)


def main() -> int:
    """Install all parts; return the exit code."""
    missing = 0
    for name, bring, without in PARTS:
        try:
            bring()
        except WindowConsumerError as error:
            missing += 1
            print(f"{name}: missing, {without}: {error}", file=sys.stderr)
        else:
            print(f"{name}: there")
    return 1 if missing and os.environ.get("CI") else 0


if __name__ == "__main__":
    sys.exit(main())
