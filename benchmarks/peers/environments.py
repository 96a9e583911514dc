"""The peers' environments: a virtual environment or a Maven project each, made once and kept.

They are in ``.peers`` in the checkout, or in $WINDOW_CONSUMER_PEERS_DIR. A failed installation is
no error: its peers are listed with the reason.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from attrs import frozen

from benchmarks.children import CHECKOUT
from benchmarks.topics import Say
from window_consumer.model.errors import RunError

DIRECTORY_VARIABLE = "WINDOW_CONSUMER_PEERS_DIR"

_INSTALL_S = 900.0
_STAMP = ".made-from"
_SHARED = ("Trial", "HandOver")
_HERE = Path(__file__).parent


class NotInstalledError(RunError):
    """A peer cannot be installed on this machine; the message says why, in one line."""


class Environment(Protocol):
    """What a peer's program needs."""

    def prepare(self, name: str, say: Say, /) -> Path:
        """Make it if it is missing; return its directory. Raises NotInstalledError."""

    def command(self, directory: Path, runner: str, /) -> list[str]:
        """Return the command that starts a runner there; the run's arguments follow it."""


@frozen
class Ours:
    """The environment of this process."""

    def prepare(self, _name: str, _say: Say, /) -> Path:
        return Path(sys.prefix)

    def command(self, _directory: Path, runner: str, /) -> list[str]:
        return [sys.executable, "-m", f"benchmarks.peers.runners.{runner}"]


@frozen
class Venv:
    """A virtual environment with a peer, at a fixed version."""

    packages: tuple[str, ...]
    python: str = ""
    """The Python that the peer requires, such as ``3.12``. If it is missing, ours is tried."""

    def prepare(self, name: str, say: Say) -> Path:
        return made(name, " ".join((*self.packages, self.python)), self._install, say)

    def command(self, directory: Path, runner: str) -> list[str]:
        return [str(directory / "bin" / "python"), "-m", f"benchmarks.peers.runners.{runner}"]

    def _install(self, directory: Path) -> None:
        asked_for = python_of(self.python) if self.python else sys.executable
        _do([asked_for or sys.executable, "-m", "venv", str(directory)])
        pip = [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        pip += ["--disable-pip-version-check"]
        _do([*pip, *([] if asked_for else ["--ignore-requires-python"]), *self.packages])


@frozen
class Maven:
    """A Maven project beside this file: the peers' jars and the programs that use them."""

    project: str
    java_at_least: int
    shared: str = ""
    """The project whose ``Trial`` and ``HandOver`` it also needs."""

    def prepare(self, name: str, say: Say) -> Path:
        files = self._files()
        text = "".join(path.read_text("utf-8") for path in files.values())

        def install(directory: Path) -> None:
            for place, path in files.items():
                (directory / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, directory / place)
            self._build(directory)

        return made(name, f"{text} Java {self.java_at_least}", install, say)

    def command(self, directory: Path, runner: str) -> list[str]:
        options = ["-Xms512m", "-Xmx2g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        path = f"{directory / 'target' / 'classes'}:{directory / 'lib'}/*"
        return [str(self._home() / "bin" / "java"), *options, "-cp", path, f"peers.{runner}"]

    def _files(self) -> Mapping[str, Path]:
        """Return all source files by their place in the project."""
        source = _HERE / self.project
        found = {
            str(path.relative_to(source)): path
            for path in sorted(source.rglob("*"))
            if path.is_file()
        }
        if self.shared:
            for name in _SHARED:
                place = f"src/main/java/peers/{name}.java"
                found[place] = _HERE / self.shared / place
        return found

    def _build(self, directory: Path) -> None:
        maven = shutil.which("mvn")
        if maven is None:
            raise NotInstalledError("no `mvn` found")
        goals = ["compile", "dependency:copy-dependencies", f"-DoutputDirectory={directory}/lib"]
        # Look again for what could not be found before.
        options = ["--batch-mode", "--quiet", "--update-snapshots"]
        command = [maven, *options, "--file", str(directory / "pom.xml"), *goals]
        _do(command, {"JAVA_HOME": str(self._home())})

    def _home(self) -> Path:
        """Return a Java that is new enough: the default, or another installed one."""
        usual = shutil.which("java")
        homes = [Path(usual).resolve().parents[1]] if usual else []
        homes += sorted(Path("/usr/lib/jvm").glob("*"))
        for home in homes:
            if _version_of(home) >= self.java_at_least:
                return home
        raise NotInstalledError(f"no Java {self.java_at_least} or later found")


ENVIRONMENTS: Mapping[str, Environment] = {
    "ours": Ours(),
    "confluent-kafka": Venv(("confluent-kafka==2.16.1",)),
    "aiokafka": Venv(("aiokafka==0.14.0",)),
    "arroyo": Venv(("sentry-arroyo==2.48.0",)),
    "faststream": Venv(
        ("faststream[confluent,kafka]==0.7.8", "faststream-concurrent-aiokafka==0.7.2")
    ),
    "pyrallel-consumer": Venv(("pyrallel-consumer==1.0.0",), python="3.12"),
    "quixstreams": Venv(("quixstreams==3.28.1",)),
    "jvm": Maven("jvm", java_at_least=17),
    "kpipe": Maven("kpipe", java_at_least=25, shared="jvm"),
}


def directory_of_all() -> Path:
    """Return where the environments are kept."""
    chosen = os.environ.get(DIRECTORY_VARIABLE)
    return Path(chosen) if chosen else CHECKOUT / ".peers"


def made(name: str, text: str, install: Callable[[Path], None], say: Say) -> Path:
    """Return an environment's directory; rebuild it when its source text has changed."""
    directory = directory_of_all() / name
    stamp, wanted = directory / _STAMP, hashlib.sha256(text.encode()).hexdigest()
    if not stamp.is_file() or stamp.read_text() != wanted:
        say(f"installing {name}")
        if directory.exists():
            shutil.rmtree(directory)
        directory.parent.mkdir(parents=True, exist_ok=True)
        install(directory)
        stamp.write_text(wanted)
    return directory


def _do(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=_INSTALL_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalledError(f"{command[0]}: {error}") from error
    if done.returncode:
        raise NotInstalledError(last_error(done.stdout + done.stderr))


def last_error(said: str) -> str:
    """Return the line in which pip or Maven reports the error."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said)
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    if failed := [line for line in lines if line.startswith("[ERROR]")]:
        # Maven reports the error first, and then how to get help.
        return failed[0].removeprefix("[ERROR]").partition(" -> [Help")[0].strip()
    errors = [line for line in lines if "error" in line.lower()] or lines
    return errors[-1].removeprefix("ERROR:").strip() if errors else "it did not say why"


def python_of(version: str) -> str | None:
    """Return a Python of a version such as ``3.12``: the default, or one that pyenv keeps."""
    usual = shutil.which(f"python{version}")
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [*([usual] if usual else []), *map(str, kept.glob(f"{version}.*/bin/python"))]
    for candidate in candidates:
        # pyenv has programs of that name that only print that no such version is selected.
        asked = subprocess.run([candidate, "--version"], capture_output=True, check=False)
        if asked.returncode == 0:
            return candidate
    return None


def _version_of(home: Path) -> int:
    release = home / "release"
    text = release.read_text("utf-8", "replace") if release.is_file() else ""
    found = re.search(r'JAVA_VERSION="(\d+)', text)
    return int(found[1]) if found else 0
