"""``window-consumer dlq debug``: a session with the debugger, typed in advance."""

from __future__ import annotations

import pytest

from tests.cli.dead_letters import DLQ, SHOP, config_for, fill, letter
from tests.commands import Commands, Ended
from tests.golden_texts import Golden
from window_consumer.kafka.embedded import EmbeddedBroker

AROUND = """

@app.lifespan
def pool():
    yield "resource"


@app.middleware
def around(record, call_next):
    print("around", record.state, flush=True)
    return call_next(record)
"""

COMMITS = """

@app.middleware
def session(record, call_next):
    try:
        call_next(record)
    except Exception:
        {around}
    print("committed", flush=True)
"""


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> Commands:
    commands.configure(config_for(embedded.bootstrap))
    commands.application(SHOP)
    fill(embedded, letter(17), letter(18, b'{"amount": 5}'))
    return commands


def debug(shop: Commands, name: str, *typed: str) -> Ended:
    text = "".join(f"{line}\n" for line in typed)
    return shop.start("dlq", "debug", name, "shop:app", typed=text).wait(debugs=True)


def test_it_stops_in_the_handler_and_again_where_the_exception_was_raised(shop: Commands) -> None:
    ended = debug(shop, "orders/0/17", "p order.offset", "c", "p order.value", "q")
    assert ended.code == 1
    stepping, _, after = ended.out.partition("17\n")
    assert "charge(order" in stepping or "order.json()" in stepping
    assert "raise ValueError" in after
    assert """b'{"amount": 0}'""" in after
    assert "no amount: b'c1'" in ended.err


def test_a_handler_that_returns_ends_with_0(shop: Commands, golden: Golden) -> None:
    ended = debug(shop, "orders/0/18", "c")
    assert ended.code == 0
    assert "charged 18" in ended.out
    golden(ended.err.splitlines()[-1])


@pytest.mark.parametrize("typed", [("q",), ("n", "q"), ()], ids=["at once", "later", "no input"])
def test_quitting_ends_with_0_and_does_not_count_as_a_handler_that_returned(
    shop: Commands, typed: tuple[str, ...], golden: Golden
) -> None:
    ended = debug(shop, "orders/0/18", *typed)
    assert ended.code == 0
    assert "charged 18" not in ended.out
    golden(ended.err)


@pytest.mark.parametrize("around", ["raise", "return None"], ids=["passes", "swallows"])
def test_middleware_does_not_take_a_call_that_was_quit_for_one_that_returned(
    shop: Commands, around: str
) -> None:
    shop.application(SHOP + COMMITS.format(around=around))
    ended = debug(shop, "orders/0/18", "q")
    assert ended.code == 0
    assert "committed" not in ended.out
    assert ended.err.splitlines()[-1].startswith("quit: ")


def test_lifespan_and_middleware_are_around_the_call(shop: Commands) -> None:
    shop.application(SHOP + AROUND)
    ended = debug(shop, "orders/0/18", "p order.state", "c")
    assert ended.code == 0
    assert "around resource" in ended.out
    assert "'resource'" in ended.out


def test_a_lifespan_that_fails_is_reported(shop: Commands) -> None:
    shop.application(SHOP + "\n\n@app.lifespan\ndef pool():\n    raise OSError('no database')\n")
    ended = debug(shop, "orders/0/18", "c")
    assert ended.code == 1
    assert "OSError: no database" in ended.err
    assert "Traceback" not in ended.err


def test_a_skipped_record_is_no_failure(shop: Commands) -> None:
    skips = SHOP.replace("import App", "import App, Skip").replace("raise ValueError", "raise Skip")
    shop.application(skips)
    ended = debug(shop, "orders/0/17", "c")
    assert ended.code == 0
    assert " skips " in ended.err


def test_nothing_is_produced_or_committed(shop: Commands, embedded: EmbeddedBroker) -> None:
    before = embedded.end_offsets(DLQ)
    embedded.track_requests()
    debug(shop, "orders/0/17", "c", "q")
    produce, commit, join = 0, 8, 11
    kinds = embedded.requests()
    assert not kinds.keys() & {produce, commit, join}
    assert embedded.end_offsets(DLQ) == before


def test_a_dead_letter_that_there_is_not_ends_with_2(shop: Commands) -> None:
    ended = debug(shop, "orders/0/99")
    assert ended.code == 2
    assert "orders/0/99" in ended.err


COROUTINE = """
import asyncio
import contextlib

from window_consumer import App, Record

app = App("shop")


@app.lifespan
async def pool():
    yield asyncio.get_running_loop()


@app.middleware
async def around(record, call_next):
    try:
        return await call_next(record)
    finally:
        print("around", flush=True)


@app.handler("orders", group="shop")
async def charge(order: Record) -> None:
    amount = order.json()["amount"]
    await asyncio.sleep(0)
    assert order.state is asyncio.get_running_loop()
    print("amount", amount, flush=True)
    if amount == 0:
        raise ValueError("no amount")
"""


def test_a_coroutine_is_stepped_through_without_the_loop_below_it(shop: Commands) -> None:
    shop.application(COROUTINE)
    ended = debug(shop, "orders/0/17", "n", "n", "p amount + 1000", "n", "p 'here'", "c", "q")
    assert ended.code == 1
    assert "1000\n" in ended.out
    assert ended.out.index("amount = order.json()") < ended.out.index("await asyncio.sleep(0)")
    assert "asyncio/" not in ended.out.partition("amount 0")[0]
    assert "around" in ended.out
    assert "no amount" in ended.err


def test_a_coroutine_that_returns_ends_with_0_and_one_that_is_quit_does_not_return(
    shop: Commands, golden: Golden
) -> None:
    shop.application(COROUTINE)
    ended = debug(shop, "orders/0/18", "c")
    assert ended.code == 0
    assert "amount 5" in ended.out
    golden(ended.err.splitlines()[-1])
    ended = debug(shop, "orders/0/18", "n", "q")
    assert ended.code == 0
    assert "amount" not in ended.out.partition("(Pdb)")[2].partition("amount = order")[0]
    assert ended.err.splitlines()[-1].startswith("quit: ")
