"""PostgreSQL as a child process: a separate server, for tests and benchmarks."""

# ruff: noqa: S603 - this module starts PostgreSQL

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from window_consumer.model.errors import RunError
from window_consumer.testing.real_kafka_settings import free_addresses

USER: Final = "wc"
"""The super user of each server, without a password."""

FOR_TESTS: Final[Mapping[str, str]] = {
    "max_connections": "300",
    "shared_buffers": "128MB",
    "logging_collector": "off",
}

_DEBIAN: Final = Path("/usr/lib/postgresql")
_UNPRIVILEGED: Final = "postgres"
"""The user of Debian's package: PostgreSQL refuses to run as root."""

_START_S: Final = 60.0
_STOP_S: Final = 30.0
_POLL_S: Final = 0.02
_TAIL_CHARS: Final = 3_000

# Kills PostgreSQL when this process ends in any way, which closes the pipe.
_WATCHDOG: Final = 'cat > /dev/null; kill -s KILL -- "-$1"'


class PostgresUnavailableError(RunError):
    """PostgreSQL's server is not installed, or this user may not start it."""

    code = "WC191"


def find_server() -> Path:
    """Return the folder with PostgreSQL's programs: Debian's newest, or the one on the PATH.

    Raises PostgresUnavailableError.
    """
    versions = [path for path in _DEBIAN.glob("*/bin") if (path / "initdb").exists()]
    if versions:
        return max(versions, key=lambda path: int(path.parent.name))
    if (found := shutil.which("initdb")) is not None:
        return Path(found).resolve().parent
    raise PostgresUnavailableError(
        "no PostgreSQL server: run `apt-get install postgresql`, or similar, as root"
    )


class RealPostgres:
    """A separate PostgreSQL server on 127.0.0.1. Owner: the thread that made it.

    It ends with the ``with`` block, and also when its parent dies. Port and committed data outlive
    ``stop``, ``kill`` and ``restart``.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str], programs: Path):
        self.log = directory / "postgres.log"
        """PostgreSQL's own log."""
        self.directory = directory
        _, _, port = free_addresses(1)[0].rpartition(":")
        self.port = int(port)
        self._programs = programs
        self._settings = {
            **FOR_TESTS,
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": "",
            **settings,
        }
        self._user = _UNPRIVILEGED if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls, directory: Path, settings: Mapping[str, str] | None = None) -> Self:
        """Start PostgreSQL in an empty directory, and return when it answers: after 2 to 4 s.

        ``settings`` are those of postgresql.conf. Raises PostgresUnavailableError if no server is
        installed, RunError with the end of its log if it does not start.
        """
        postgres = cls(directory / "postgres", settings or {}, find_server())
        postgres._initialize()
        postgres.restart()
        return postgres

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int | None:
        """The server's process, None while it does not run."""
        return None if self._process is None else self._process.pid

    def url(self, database: str = "postgres", driver: str = "psycopg") -> str:
        """Return SQLAlchemy's URL of a database."""
        return f"postgresql+{driver}://{USER}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str) -> str:
        """Create an empty database; return its URL."""
        self.query(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def query(self, sql: str, database: str = "postgres") -> str:
        """Return psql's output for a statement, one row per line; RunError if it fails."""
        command = ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1"]
        return self._run([*command, "-p", str(self.port), "-U", USER, "-c", sql, database])

    def restart(self) -> None:
        """Start the server again, on the same port and with the same data."""
        self.stop()
        options = [
            part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self._data), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
                user=self._user,
                group=self._group,
                extra_groups=None if self._user is None else [],
            )
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHDOG, "sh", str(self._process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._wait_until_ready()

    def stop(self) -> None:
        """Stop the server cleanly: it closes its connections and keeps all committed data."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):  # it is killed next
                self._process.wait(_STOP_S)
        self.kill()

    def kill(self) -> None:
        """Kill the server and its connections at once, as when a machine fails."""
        process, self._process = self._process, None
        if process is not None:
            _kill_group(process.pid)
            process.wait()
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            watchdog.kill()
            watchdog.wait()
            if watchdog.stdin is not None:
                watchdog.stdin.close()

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def _group(self) -> int | None:
        return None if self._user is None else pwd.getpwnam(self._user).pw_gid

    def _initialize(self) -> None:
        self.directory.mkdir(parents=True)
        if self._user is not None:
            try:
                account = pwd.getpwnam(self._user)
            except KeyError:
                raise PostgresUnavailableError(
                    f"PostgreSQL refuses to run as root, but there is no user {self._user}"
                ) from None
            os.chown(self.directory, account.pw_uid, account.pw_gid)
            _let_through(self.directory.parent)
        options = ["-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        self._run(["initdb", "-D", str(self._data), *options])

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_S
        command = [
            str(self._programs / "pg_isready"),
            "-q",
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
        ]
        while subprocess.run(command, check=False).returncode != 0:
            process = self._process
            if process is None or process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RunError(f"PostgreSQL did not start: {self._tail()}")
            time.sleep(_POLL_S)

    def _run(self, command: Sequence[str]) -> str:
        program, *arguments = command
        ended = subprocess.run(
            [str(self._programs / program), *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.directory,
            user=self._user,
            group=self._group,
            extra_groups=None if self._user is None else [],
        )
        if ended.returncode != 0:
            raise RunError(f"{program} failed: {ended.stderr.strip()[-_TAIL_CHARS:]}")
        return ended.stdout.strip()

    def _tail(self) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return f"the end of {self.log}:\n{text[-_TAIL_CHARS:]}"


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError):  # it has ended by itself
        os.killpg(group, signal.SIGKILL)


def _let_through(directory: Path) -> None:
    """Give PostgreSQL's user access to a folder below private temporary folders."""
    for folder in (directory, *directory.parents):
        mode = folder.stat().st_mode
        if folder.stat().st_uid == os.geteuid() and not mode & 0o001:
            folder.chmod(mode | 0o011)
