"""An application inside of a program: what it leaves alone, and what surrounds its calls."""

from __future__ import annotations

import pytest

from tests.commands import Commands, Ended, kafka_of
from tests.golden_texts import Golden
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent

SHOP = """
import contextvars
import logging
import threading

from window_consumer import App, Record, current_record

app = App("shop")
log = logging.getLogger("shop")
handled = threading.Semaphore(0)


def say(*words):
    # In one write: other threads talk, too.
    print(" ".join(map(str, words)) + "\\n", end="", flush=True)


@app.handler("orders", group="shop", ordering="key", concurrency=2,
             retry={"attempts": 2, "backoff": "10ms..10ms", "on_failure": "overtake"})
def charge(order: Record) -> None:
    say("charge", order.text(), order.attempt, order.state)
    deep_below(order)
    if order.text() == "again" and order.attempt == 1:
        raise ValueError("E")
    handled.release()


def deep_below(order: Record) -> None:
    log.warning("looking")
    assert current_record() is order
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(in_a_thread, order))
    thread.start()
    thread.join()


def in_a_thread(order: Record) -> None:
    assert current_record() is order
    log.warning("looking-within")


@app.middleware
def outer(record, call_next):
    say("outer before", record.attempt)
    try:
        return call_next(record)
    except ValueError as error:
        say("outer saw", error)
        raise
    finally:
        say("outer after")


@app.middleware
def inner(record, call_next):
    say("inner before")
    call_next(record)
    say("inner after")


@app.lifespan
def pools():
    say("enter")
    yield "pools"
    say("leave")
"""

EMBEDDING = """
from shop import app, handled

with app.start("workers.yaml"):
    handled.acquire()
"""


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> Commands:
    """An application with one record to handle."""
    embedded.create_topic("orders", 1)
    embedded.produce("orders", b"again", key=b"k")
    commands.application(SHOP)
    commands.configure({"kafka": kafka_of(embedded), "workers": {"charge": {}}})
    return commands


def fine(ended: Ended) -> list[str]:
    assert ended.code == 0, ended.err
    return ended.out.splitlines()


def test_it_leaves_signals_logging_and_the_interpreter_as_they_are(shop: Commands) -> None:
    lines = fine(
        shop.script(
            """
import gc
import logging
import signal
import sys
import threading
import warnings

from shop import app, handled


def state():
    loggers = [logging.getLogger(), *logging.root.manager.loggerDict.values()]
    return [
        {number.name: repr(signal.getsignal(number)) for number in signal.Signals},
        [handler for each in loggers for handler in getattr(each, "handlers", [])],
        [(each.name, each.level) for each in loggers if getattr(each, "level", 0)],
        logging.root.disabled, logging.getLoggerClass(), logging.getLogRecordFactory(),
        sys.getswitchinterval(), sys.getrecursionlimit(), sys.gettrace(), sys.getprofile(),
        gc.get_threshold(), gc.isenabled(), gc.get_freeze_count(),
        sys.excepthook, threading.excepthook, sys.unraisablehook, warnings.filters,
        threading.stack_size(),
    ]


for name in ("shop", "window_consumer", "window_consumer.client"):
    logging.getLogger(name)
before = state()
with app.start("workers.yaml"):
    handled.acquire()
    during = state()
assert before == during, (before, during)
assert before == state()
print("the same")
"""
        )
    )
    assert lines[-1] == "the same"


def test_the_lifespan_surrounds_all_calls_and_middleware_each_call_in_its_order(
    shop: Commands,
) -> None:
    assert fine(shop.script(EMBEDDING)) == [
        "enter",
        "outer before 1",
        "inner before",
        "charge again 1 pools",
        "outer saw E",
        "outer after",
        "outer before 2",
        "inner before",
        "charge again 2 pools",
        "inner after",
        "outer after",
        "leave",
    ]


def test_the_lifespan_is_entered_once_for_several_workers(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    again = {"handler": "charge", "group": "again"}
    shop.configure({"kafka": kafka_of(embedded), "workers": {"charge": {}, "again": again}})
    lines = fine(shop.script(EMBEDDING.replace("acquire()", "acquire(); handled.acquire()")))
    assert lines.count("charge again 2 pools") == 2
    assert (lines.count("enter"), lines.count("leave")) == (1, 1)
    assert (lines[0], lines[-1]) == ("enter", "leave")


def test_log_lines_name_their_record_where_the_program_asks_for_it(shop: Commands) -> None:
    ended = shop.script(
        "import logging\n"
        "from window_consumer import RecordContext\n"
        "handler = logging.StreamHandler()\n"
        "handler.addFilter(RecordContext())\n"
        "form = '%(message)s %(topic)s %(partition)s %(offset)s %(attempt)s'\n"
        "logging.basicConfig(handlers=[handler], format=form)\n" + EMBEDDING + "\n"
        "logging.warning('outside')\n"
    )
    fine(ended)
    assert [line for line in ended.err.splitlines() if line.startswith(("looking", "outside"))] == [
        "looking orders 0 0 1",
        "looking-within orders 0 0 1",
        "looking orders 0 0 2",
        "looking-within orders 0 0 2",
        "outside None None None None",
    ]


def test_use_after_a_fork_is_a_clear_error_and_does_not_hang(shop: Commands) -> None:
    lines = fine(
        shop.script(
            """
import os
import sys

from shop import app, handled
from window_consumer import UsageError

running = app.start("workers.yaml")
handled.acquire()


def tried(what, use):
    try:
        use()
    except UsageError as error:
        clear = "was started in another process" in str(error)
        os.write(out, f"{what} {clear}\\n".encode())


child = os.fork()
if not child:
    # What the parent's threads had in the buffer of stdout is not the child's to write.
    out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    tried("stop", running.stop)
    tried("wait", running.wait)
    tried("snapshots", running.snapshots)
    tried("counters", lambda: running.counters)
    tried("exit", lambda: running.__exit__(None, None, None))
    with running:
        sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
with running:
    print("parent", len(running.snapshots()))
"""
        )
    )
    reported = [line for line in lines if line.endswith(("True", "False")) or "parent" in line]
    assert reported == [
        "stop True",
        "wait True",
        "snapshots True",
        "counters True",
        "exit True",
        "parent 1",
    ]


BROKEN = """
from window_consumer import App

app = App("shop")


@app.handler("orders", group="shop")
def charge(order):
    print("charged", flush=True)


@app.lifespan
def pools():
    raise ConnectionError("hunter2 away")
    yield
"""


def test_a_lifespan_that_fails_at_the_start_ends_the_command_with_1_and_a_readable_error(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    shop.application(BROKEN)
    client = kafka_of(embedded) | {"sasl.password": "hunter2"}
    shop.configure({"kafka": client, "workers": {"charge": {}}})
    ended = shop.run("run", "shop:app")
    assert (ended.code, ended.out) == (1, "")
    place = f"{shop.directory}/shop.py:14"
    error = f"error: @app.lifespan failed at {place}: ConnectionError: *** away"
    (line,) = ended.err.splitlines()
    assert line.startswith(f"{error} [WC")


LIFESPAN_WITH_TASKS = """
import asyncio
import os

from window_consumer import App, Record

app = App("shop")


@app.lifespan
async def session():
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(keep_alive())
        print("enter", flush=True)
        yield
        raise AssertionError("it is never left")


async def keep_alive():
    await charged.wait()
    raise ConnectionError("the session is gone")


charged = asyncio.Event()


@app.handler("orders", group="shop")
async def charge(order: Record) -> None:
    print("charge", flush=True)
    charged.set()
"""


def test_a_lifespan_that_ends_by_itself_drains_the_worker_and_says_why(
    shop: Commands, golden: Golden
) -> None:
    shop.application(LIFESPAN_WITH_TASKS)
    running = shop.start("run", "shop:app")
    running.wait_for_event(LogEvent.WORKER_STOPPED, processed=1)
    ended = running.wait()
    assert ended.code == 1
    golden(ended.line_of(LogEvent.LIFESPAN_ENDED)["message"])
    assert ended.out.splitlines() == ["enter", "charge"]


def test_a_lifespan_that_fails_at_the_start_is_an_error_with_its_cause(shop: Commands) -> None:
    shop.application(BROKEN)
    lines = fine(
        shop.script(
            "from shop import app\n"
            "from window_consumer import LifespanError\n"
            "try:\n"
            "    with app.start('workers.yaml'):\n"
            "        print('started')\n"
            "except LifespanError as error:\n"
            "    print(repr(error.__cause__))\n"
        )
    )
    assert lines == ["ConnectionError('hunter2 away')"]


def test_a_lifespan_that_is_no_context_is_wrong_usage(shop: Commands) -> None:
    shop.application(BROKEN.replace("    yield\n", "").replace("raise ", "return "))
    ended = shop.run("run", "shop:app")
    assert ended.code == 2
    assert "@app.lifespan: pools " in ended.err
