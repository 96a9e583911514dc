"""Parts of the tests' children: functions that a process can import."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import logging
import os
import signal
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import frozen

from window_consumer import Fatal, PartialFailure, Produce, Record, RetryLater, Skip
from window_consumer.model.errors import NoHandlerMatched, UsageError
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.calls.layer import CallForm
from window_consumer.runtime.calls.routing import Route, routed
from window_consumer.runtime.context import current_record
from window_consumer.runtime.error_report import ErrorReports
from window_consumer.runtime.pools.processes.child_main import ChildTools

log = logging.getLogger("children")


@frozen
class Equip:
    """The handler that a child gets, by its name, and a failure at its start."""

    handler: str
    trouble: str = ""

    def __call__(self) -> ChildTools:
        if self.trouble == "usage":
            raise UsageError("shop:app: there is no module 'shop'")
        if self.trouble == "bug":
            raise ZeroDivisionError("in the application")
        if self.trouble == "exit":
            os._exit(7)
        if self.trouble == "hangs":
            _spin("")
        handler = globals()[self.handler]
        return ChildTools(
            Caller(handler, ErrorReports().failure),
            _lifespan(self.trouble),
            lambda _message: 40,
            NAMES if self.handler == "either" else (),
        )


@contextlib.contextmanager
def _lifespan(trouble: str) -> Iterator[str]:
    if trouble == "exit late":
        os._exit(8)
    what, _, path = trouble.partition(" ")
    if what == "once" and not Path(path).exists():
        Path(path).touch()
    elif what in {"once", "lifespan"}:
        raise ConnectionError("no database")
    yield f"state of {os.getpid()}"
    if trouble == "second stays" and threading.current_thread().name == "wc-work-slot-1":
        _spin("")


def nothing(_record: Record) -> None:
    """Finish everything."""


def tell(record: Record) -> Produce:
    """Return all that a handler can see of its record."""
    current = current_record()
    seen: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": (record.key or b"").decode(),
        "value": record.text(),
        "headers": [(name, (value or b"").decode()) for name, value in record.headers],
        "timestamp": record.timestamp,
        "attempt": record.attempt,
        "is_copy": record.is_copy,
        "state": record.state == f"state of {os.getpid()}",
        "current": current is not None and current.offset == record.offset,
        "cancelled": record.cancelled,
        "argv": sys.argv,
    }
    return Produce("seen", None, json.dumps(seen))


def obey(record: Record) -> Produce | None:
    """Obey the value."""
    what, _, more = record.text().partition(" ")
    if what in _DEEDS:
        _DEEDS[what](more)
    if what == "mark":
        _mark(more, record)
    if what == "produce":
        return Produce("results", None, more)
    return None


def obey_all(records: list[Record]) -> Produce | None:
    """Obey the values of a batch: each record has its own exception."""
    failed: list[tuple[Record, BaseException]] = []
    common = RetryLater(1.0)
    for record in records:
        try:
            if record.text() == "common":
                failed.append((record, common))
            obey(record)
        except BaseException as error:
            failed.append((record, error))
    if failed:
        raise PartialFailure(failed=failed)
    return Produce("results", None, str(len(records))) if records[0].text() == "count" else None


NAMES = ("first", "second")

_route = routed(
    [Route("first", obey, lambda record: record.key == b"first"), Route("second", obey, None)],
    "dead_letter",
    CallForm(),
)


def either(record: Record) -> object:
    """Choose between two handlers, or die first if the key says so."""
    if record.key == b"before":
        os._exit(3)
    return _route(record)


def _mark(path: str, record: Record) -> None:
    with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123 - appends of one line are atomic
        file.write(f"{record.offset}\n")


def _fail(_more: str) -> None:
    class HomeMade(Fatal):
        """Not to be found in any module."""

        def __reduce__(self) -> Any:
            raise TypeError("not to be pickled")

    raise HomeMade("refused")


def _skip(_more: str) -> None:
    raise Skip


def _pass_over(_more: str) -> None:
    raise NoHandlerMatched("is for none of the handlers")


def _segv(_more: str) -> None:
    ctypes.string_at(0)


def _spin(_more: str) -> None:
    while True:
        pass


def _hold_the_interpreter(_more: str) -> None:
    deque(itertools.repeat(1), maxlen=0)  # in C, for ever


def _wait_for(path: str) -> None:
    while not os.path.exists(path):  # noqa: PTH110 - quick
        time.sleep(0.001)


def _log(text: str) -> None:
    try:
        int("inner")
    except ValueError:
        log.exception("%s", text, extra={"unpicklable": lambda: None})


def _fork(_more: str) -> None:
    process = os.fork()
    if process == 0:
        log.warning("this goes to stderr")
    else:
        _, status = os.waitpid(process, 0)
        assert os.waitstatus_to_exitcode(status) == 1


def _pipes() -> list[int]:
    """Return the files by which the child speaks, and others of its kind."""
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - these are numbers
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("pipe:") and int(name) > 2:  # noqa: PTH115 - as above
                found.append(int(name))
    return found


def _send_rubbish(_more: str) -> None:
    for pipe in _pipes():
        with contextlib.suppress(OSError):  # one of them is to be read
            os.write(pipe, struct.pack("!i", 3) + b"abc")


def _fall_silent(more: str) -> None:
    if more:
        threading.Thread(target=time.sleep, args=(1000.0,), daemon=False).start()
    for pipe in _pipes():
        os.close(pipe)
    if not more:
        _spin("")


_DEEDS: dict[str, Any] = {
    "exit": lambda code: os._exit(int(code)),
    "kill": lambda _more: os.kill(os.getpid(), signal.SIGKILL),
    "segv": _segv,
    "spin": _spin,
    "hold": _hold_the_interpreter,
    "wait": _wait_for,
    "fail": _fail,
    "skip": _skip,
    "pass": _pass_over,
    "log": _log,
    "fork": _fork,
    "rubbish": _send_rubbish,
    "silent": _fall_silent,
    "sleep": lambda seconds: time.sleep(float(seconds)),
}


def until_cancelled(record: Record) -> None:
    """Return once the call is cancelled."""
    while not record.cancelled:
        time.sleep(0.001)
