"""Threads that die: whoever runs the application hears of it."""

from __future__ import annotations

import ctypes
import sys
import threading
from pathlib import Path

import pytest

from tests.waiting import wait_until
from window_consumer import App, Record
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.errors import RunError
from window_consumer.runtime.running import Running

DEADLINE_S = 60.0


def application() -> App:
    app = App("shop")

    @app.handler("orders", group="shop", concurrency=1, stop_timeout="1s")
    def charge(order: Record) -> None:
        assert order.value

    return app


def kill_poll_thread(running: Running) -> None:
    """Let SystemExit be raised between two events.

    ``kill`` could hit a callback of the client, which loses what is raised there.
    """
    (worker,) = running.workers
    worker.loop.mailbox.ask(lambda _engine, _clock: sys.exit(), DEADLINE_S)


def kill(thread: threading.Thread) -> None:
    """Let SystemExit be raised where the thread is, as soon as it is awake."""
    assert thread.ident is not None
    exit_ = ctypes.py_object(SystemExit)
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), exit_) == 1


def thread_of(role: str) -> threading.Thread:
    def found() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each.name == role]

    wait_until(found, why=role)
    return found()[0]


@pytest.mark.parametrize(
    "role", ["wc-charge-poll", "wc-charge-publisher", "wc-charge-topics", "wc-charge-slot-0"]
)
def test_a_thread_of_a_worker_that_dies_stops_it_with_a_failure(
    embedded: EmbeddedBroker, tmp_path: Path, role: str
) -> None:
    embedded.create_topic("orders", 1)
    embedded.produce("orders", b"one", partition=0)
    app = application()
    running = app.start(config=config_for(embedded, tmp_path))
    try:
        wait_until(lambda: running.counters["charge"].processed == 1)
        if role == "wc-charge-poll":
            kill_poll_thread(running)
        else:
            kill(thread_of(role))
        if role.endswith("slot-0"):
            embedded.produce("orders", b"two", partition=0)
        assert running.wait(DEADLINE_S)
    finally:
        running.stop()
    with pytest.raises(RunError) as raised, running:
        pass
    if role != "wc-charge-poll":
        assert role in str(raised.value)


def test_a_supervisor_that_dies_is_a_failure_and_its_workers_end(
    embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded.create_topic("orders", 1)
    running = application().start(config=config_for(embedded, tmp_path))
    poll = thread_of("wc-charge-poll")
    kill(thread_of("wc-supervisor"))
    assert running.wait(DEADLINE_S)
    with pytest.raises(RunError, match="the supervisor"), running:
        pass
    poll.join(DEADLINE_S)
    assert not poll.is_alive()


def config_for(broker: EmbeddedBroker, directory: Path) -> Path:
    file = directory / "workers.yaml"
    settings = "".join(f"  {name}: {value}\n" for name, value in broker.client_settings().items())
    file.write_text(f"kafka:\n{settings}workers:\n  charge: {{}}\n", "utf-8")
    return file
