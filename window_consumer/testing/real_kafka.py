"""Apache Kafka as a child process: one node in KRaft mode, for tests and benchmarks."""

# ruff: noqa: S603 - this module starts Java

from __future__ import annotations

import base64
import os
import secrets
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from window_consumer.model.errors import RunError
from window_consumer.testing.real_kafka_jars import (
    KafkaUnavailableError,
    archive_of,
    default_directory,
    fetch_jars,
    find_java,
)
from window_consumer.testing.real_kafka_settings import (
    FOR_TESTS,
    USERS,
    Settings,
    free_addresses,
    listeners,
    security,
)

__all__ = ["KafkaUnavailableError", "RealKafka"]

_START_S = 240.0  # guards against hanging only, like _FORMAT_S: a start that fails ends by itself
_STOP_S = 30.0
_FORMAT_S = 240.0
_CHECK_S = 0.05
_ATTEMPTS = 3
_STARTED = "Kafka Server started"
_PORT_TAKEN = "Address already in use"
_SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Halves the processor time of a life of one minute; a second compiler pays off later."""
_SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""Java reports an archive that it cannot use, and starts without it."""
_TAIL_CHARS = 3_000

# Kills Kafka when this process ends in any way, which closes the pipe.
_WATCHDOG = 'cat > /dev/null; kill -s KILL -- "-$1"'


class RealKafka:
    """A separate Kafka broker and controller on 127.0.0.1. Owner: the thread that made it.

    At ``bootstrap`` everyone is a super user. ``sasl_bootstrap`` requires a user and a password
    (mechanism PLAIN), or an unsigned token (OAUTHBEARER), and all users but admin need ACLs. The
    process ends with the ``with`` block, and also when its parent dies. Addresses and data outlive
    ``stop``, ``kill`` and ``restart``.
    """

    def __init__(
        self, directory: Path, settings: Settings, addresses: Sequence[str], *, java: Sequence[str]
    ):
        self.log = directory / "kafka.log"
        """Kafka's own log."""
        self.passwords: dict[str, str] = {user: secrets.token_hex(8) for user in USERS}
        self.bootstrap, self.sasl_bootstrap, controller = addresses
        self._properties = directory / "server.properties"
        self._java = java
        self._java_options: Sequence[str] = ()
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._settings = {
            **FOR_TESTS,
            **listeners(self.bootstrap, self.sasl_bootstrap, controller),
            **security(self.passwords),
            "log.dirs": str(directory / "data"),
            **settings,
        }

    @classmethod
    def start(
        cls,
        directory: Path,
        settings: Settings | None = None,
        jars_directory: Path | None = None,
        *,
        addresses: Callable[[int], list[str]] = free_addresses,
        short_lived: bool = True,
        java_options: Sequence[str] = (),
    ) -> Self:
        """Start Kafka in an empty directory, and return when it answers: after 2 to 8 s.

        ``settings`` override the broker settings for tests. A ``short_lived`` Kafka starts sooner
        but is slower in the long run. ``java_options`` are for the broker's Java. Raises
        KafkaUnavailableError without Java or Maven, RunError with the end of Kafka's log where it
        does not start.
        """
        options = ["-Xmx1g", *(_SHORT_LIVED if short_lived else ())]
        java = _java(jars_directory or default_directory(), options, archived=short_lived)
        for attempt in range(1, _ATTEMPTS + 1):
            place = directory / f"kafka-{attempt}"
            place.mkdir(parents=True)
            kafka = cls(place, settings or {}, addresses(3), java=java)
            kafka._java_options = java_options
            try:
                kafka._format()
                kafka.restart()
            except RunError:
                if attempt == _ATTEMPTS or _PORT_TAKEN not in kafka._log_text():
                    raise
            else:
                return kafka
        raise AssertionError("the last attempt returns or raises")

    @classmethod
    def formatted(
        cls,
        directory: Path,
        settings: Settings,
        addresses: Sequence[str],
        *,
        cluster_id: str,
        heap: str = "1g",
    ) -> Self:
        """Prepare a long-lived node of a cluster; ``restart`` starts it. Raises like ``start``."""
        directory.mkdir(parents=True)
        java = _java(default_directory(), [f"-Xmx{heap}"])
        kafka = cls(directory, settings, addresses, java=java)
        kafka._format(cluster_id)
        return kafka

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int | None:
        """Kafka's process, None while it does not run."""
        return None if self._process is None else self._process.pid

    def sasl_settings(self, user: str) -> dict[str, str]:
        """Return librdkafka's settings for a login as one of ``USERS``."""
        return {
            "bootstrap.servers": self.sasl_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": self.passwords[user],
        }

    def oauth_settings(self) -> dict[str, str]:
        """Return librdkafka's settings for a login with tokens."""
        return {
            "bootstrap.servers": self.sasl_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
        }

    # ---- start and stop

    def restart(self) -> None:
        """Start Kafka at the same addresses and with its data; stop it first if it runs."""
        self.stop()
        said = len(self._log_text())
        options = [*self._java_options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        options += ["-Dorg.slf4j.simpleLogger.showDateTime=true"]
        options += ["-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS"]
        options += ["-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._java, *options, "kafka.Kafka", str(self._properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._watchdog = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHDOG, "watchdog", str(self._process.pid)],
                stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._wait_until_started(self._process, said)
        except BaseException:
            self.kill()
            raise

    def _wait_until_started(self, process: subprocess.Popen[bytes], said: int) -> None:
        """Wait for the log line: the port answers before topics can be created."""
        deadline = time.monotonic() + _START_S
        while _STARTED not in self._log_text()[said:]:
            if process.poll() is not None:
                raise RunError(f"Kafka ended with code {process.returncode}: {self._tail()}")
            if time.monotonic() >= deadline:
                raise RunError(f"Kafka has not started within {_START_S:g} s: {self._tail()}")
            time.sleep(_CHECK_S)

    def stop(self) -> None:
        """Shut Kafka down cleanly, if it runs."""
        if self._process is None:
            return
        self.resume()
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
        self._reap()

    def kill(self) -> None:
        """Kill Kafka at once, if it runs."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._reap()

    def pause(self) -> None:
        """Freeze Kafka, and return once it is frozen: connections stay, but get no answers."""
        self._signal(signal.SIGSTOP)
        if self._process is not None and self._process.returncode is None:
            # Its threads stop one after another, and one of them may answer meanwhile.
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Resume a frozen Kafka."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise RunError("Kafka is not running")
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def _reap(self) -> None:
        """Reap the processes of Kafka and its watchdog."""
        process, self._process = self._process, None
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            os.killpg(watchdog.pid, signal.SIGKILL)
            watchdog.communicate()
        if process is not None:
            process.wait()

    def _log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def _tail(self) -> str:
        return f"the end of {self.log}:\n{self._log_text()[-_TAIL_CHARS:]}"

    # ---- storage

    def _format(self, cluster_id: str | None = None) -> None:
        lines = [f"{key}={value}\n" for key, value in self._settings.items()]
        self._properties.write_text("".join(lines))
        # The leading letter keeps the tool from parsing it as an option.
        if cluster_id is None:
            cluster_id = "K" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._properties)]
        done = subprocess.run(
            [*self._java, *_SHORT_LIVED, *tool],
            capture_output=True,
            text=True,
            check=False,
            timeout=_FORMAT_S,
        )
        if done.returncode != 0:
            self.log.write_text(done.stdout + done.stderr)
            raise RunError(f"Kafka's storage could not be formatted: {self._tail()}")


def _java(jars_directory: Path, options: Sequence[str], *, archived: bool = False) -> list[str]:
    # The archive knows the jars by their paths, without links.
    java, jars = find_java(), fetch_jars(jars_directory.resolve())
    archive = archive_of(jars, java)
    if archived and archive.is_file():
        options = [*options, f"-XX:SharedArchiveFile={archive}", *_SILENT]
    return [java, *options, "-cp", f"{jars}/*"]
