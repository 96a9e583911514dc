"""``window-consumer`` as a user runs it: a separate process, whose output is read as it comes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from attrs import define, field, frozen
from confluent_kafka import Producer

from tests import fork_server
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent

DEADLINE_S = 120.0
"""Far more than anything takes here, so that a busy machine breaks no test."""


Line = dict[str, Any]
"""A log line of ``--log-format json``."""

OUTCOMES = (
    "processed",
    "produced",
    "retried",
    "moved",
    "dead_lettered",
    "skipped",
    "deduplicated",
    "expired",
    "cancelled",
    "dropped",
)
"""The counts in a worker's last line, besides the unfinished records."""


def log_lines(text: str) -> list[Line]:
    """Return the log lines of an output, without other text such as a command's errors."""
    lines = text[: text.rfind("\n") + 1].splitlines()  # the last may still be written
    return [json.loads(each) for each in lines if each.startswith('{"time"')]


def is_of(line: Line, event: LogEvent, fields: Mapping[str, Any]) -> bool:
    """Return whether a line has the event and the fields."""
    return line.get("event") == event and fields.items() <= line.items()


@frozen
class Ended:
    """The output and exit code of a command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def said(self) -> str:
        return self.out + self.err

    def lines_of(self, event: LogEvent, **fields: Any) -> list[Line]:
        """Return the log lines of an event that have these fields."""
        return [each for each in log_lines(self.err) if is_of(each, event, fields)]

    def line_of(self, event: LogEvent, **fields: Any) -> Line:
        """Return the only such line."""
        (line,) = self.lines_of(event, **fields)
        return line

    def summary(self, worker: str = "") -> dict[str, int]:
        """Return a worker's last counts without zeros; without a name, those of the only worker."""
        line = self.line_of(LogEvent.WORKER_STOPPED, **({"worker": worker} if worker else {}))
        counts = {name: line[name] for name in (*OUTCOMES, "unfinished")}
        return {name: count for name, count in counts.items() if count}


class Command:
    """A running command. Its output is read as it comes, so that a test can wait for a line."""

    def __init__(self, process: subprocess.Popen[str] | fork_server.Forked):
        self.process = process
        self._texts = {"out": "", "err": ""}
        self._news = threading.Condition()
        self._open = 2
        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = [
            threading.Thread(target=self._read, args=(name, stream), daemon=True)
            for name, stream in (("out", process.stdout), ("err", process.stderr))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._news:
                    self._texts[name] += line
                    self._news.notify_all()
        with self._news:
            self._open -= 1
            self._news.notify_all()

    @property
    def said(self) -> str:
        with self._news:
            return self._texts["out"] + self._texts["err"]

    def wait_for(self, text: str, *, times: int = 1, timeout_s: float = DEADLINE_S) -> None:
        """Wait until the text has appeared ``times`` times; fail if the command ends first."""
        with self._news:
            self._news.wait_for(lambda: self._has(text, times) or not self._open, timeout_s)
            assert self._has(text, times), f"{text!r} was not said {times} times:\n{self._texts}"

    def lines_of(self, event: LogEvent, **fields: Any) -> list[Line]:
        """Return the log lines so far of an event that have these fields."""
        with self._news:
            return [each for each in log_lines(self._texts["err"]) if is_of(each, event, fields)]

    def wait_for_event(
        self, event: LogEvent, *, times: int = 1, timeout_s: float = DEADLINE_S, **fields: Any
    ) -> Line:
        """Wait for ``times`` log lines of an event with these fields; return the last one."""

        def found() -> list[Line]:
            return self.lines_of(event, **fields)

        with self._news:
            self._news.wait_for(lambda: len(found()) >= times or not self._open, timeout_s)
            lines = found()
            assert len(lines) >= times, f"{event} {fields} not {times} times:\n{self._texts}"
        return lines[times - 1]

    def _has(self, text: str, times: int) -> bool:
        return sum(each.count(text) for each in self._texts.values()) >= times

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, timeout_s: float = DEADLINE_S, *, debugs: bool = False) -> Ended:
        """Wait for the end. Only one that ``debugs`` may answer a mistake with a traceback."""
        code = self.process.wait(timeout_s)
        for reader in self._readers:
            reader.join(timeout_s)
        ended = Ended(code, self._texts["out"], self._texts["err"])
        assert debugs or "Traceback (most" not in ended.err, ended.err
        return ended

    def stop(self) -> Ended:
        """Request a clean stop."""
        self.signal(signal.SIGTERM)
        return self.wait()


@define
class Commands:
    """Runs commands in a directory with an application; ends all of them with its block."""

    directory: Path
    _started: list[Command] = field(factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for command in self._started:
            if command.process.poll() is None:
                command.process.kill()
                command.process.wait(DEADLINE_S)
                print(f"what still ran had said:\n{command.said[-5000:]}")  # shown by a failed test

    def application(self, source: str, name: str = "shop") -> None:
        (self.directory / f"{name}.py").write_text(source)

    def configure(self, config: Mapping[str, Any] | str, name: str = "workers.yaml") -> None:
        """Write a configuration; JSON is YAML."""
        text = config if isinstance(config, str) else json.dumps(config, indent=2)
        (self.directory / name).write_text(text)

    def start(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        fresh: bool = False,
        typed: str = "",
    ) -> Command:
        """Start ``window-consumer``, in an interpreter that has imported nothing if it is fresh.

        ``typed`` is what a user types in advance; a fresh one has no input.

        A worker logs JSON, whose lines have the ids of their events, unless told otherwise.
        """
        if arguments[0] == "run" and "--log-format" not in arguments:
            arguments = (*arguments, "--log-format", "json")
        if fresh:
            return self.python("-m", "window_consumer", *arguments, env=env)
        environment = {**os.environ, **(env or {})}
        return self._follow(fork_server.start(arguments, self.directory, environment, typed=typed))

    def script(
        self, source: str, *, env: Mapping[str, str] | None = None, timeout_s: float = DEADLINE_S
    ) -> Ended:
        """Run a program that embeds the framework."""
        (self.directory / "script.py").write_text(source)
        return self.python("script.py", env=env).wait(timeout_s)

    def python(self, *arguments: str, env: Mapping[str, str] | None = None) -> Command:
        """Start Python."""
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.directory,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self._follow(process)

    def _follow(self, process: subprocess.Popen[str] | fork_server.Forked) -> Command:
        command = Command(process)
        self._started.append(command)
        return command

    def run(self, *arguments: str, env: Mapping[str, str] | None = None) -> Ended:
        return self.start(*arguments, env=env).wait()


def kafka_of(broker: EmbeddedBroker) -> dict[str, Any]:
    """Return the section ``kafka`` for workers on an embedded broker."""
    settings = broker.client_settings()
    return {"bootstrap.servers": settings.pop("bootstrap.servers"), "consumer": settings}


def produce(bootstrap: str, topic: str, *values: bytes) -> None:
    """Write records from outside, to a broker that may be in another process."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(DEADLINE_S) == 0
