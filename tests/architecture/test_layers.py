"""Layers around calls: each is written once, and behaves alike around calls of every form."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from tests.engine.support import Note
from tests.testing.shops import config
from window_consumer import App, header
from window_consumer.database import Once
from window_consumer.model.record import Call, Record
from window_consumer.plan.app_plan import PlannedWorker
from window_consumer.plan.child_spec import child_spec_of
from window_consumer.runtime.calls.batch_calls import SortedResults, failed_of
from window_consumer.runtime.calls.layer import CallForm, CallLayer, CallSite, CallTools, LayerPlace
from window_consumer.runtime.calls.spans import SpansLayer
from window_consumer.runtime.calls.steps import Called, Steps
from window_consumer.testing import TestApp

FORMS = [CallForm(batches, coroutines) for batches in (False, True) for coroutines in (False, True)]
TOOLS = CallTools(lambda _topic: False, lambda: 1_700_000_000_000)  # when Notes were written


class Logging:
    """A layer of a test: it records what happens at its place, and nothing else is changed."""

    def __init__(self, place: LayerPlace, log: list[str]):
        self.place = place
        self.in_children: InChild | None = None
        self._log = log

    def refuse(self, form: CallForm) -> None:
        """Refuse nothing."""

    def wrap(self, call: Called, site: CallSite) -> Called:
        return site.form.stepped(partial(self._steps, call, site.handler))

    def _steps(self, call: Called, handler: str, given: Any) -> Steps:
        name = f"{self.place.name} {handler}".strip()
        self._log.append(f"> {name}")
        try:
            returned = yield partial(call, given)
        except BaseException as error:
            self._log.append(f"! {name} {type(error).__name__}")
            raise
        self._log.append(f"< {name}")
        return returned


class Span:
    def __init__(self, log: list[str]):
        self._log = log

    def enter(self) -> None:
        self._log.append("enter")

    def carry(self, returned: object) -> object:
        return returned

    def leave(self, error: BaseException | None) -> None:
        self._log.append(f"leave {'' if error is None else type(error).__name__}".strip())


class LoggedSpans:
    only_sampled = False

    def __init__(self, log: list[str]):
        self._log = log

    def of_record(self, _record: Record) -> Span:
        return Span(self._log)

    def of_batch(self, _records: list[Record]) -> Span:
        return Span(self._log)


class Handled:
    """A handler of one form within layers, and how to call it as a slot does."""

    def __init__(self, form: CallForm, directory: Path):
        self.form = form
        self.app = App("shop")
        self.behave: Callable[[Any], Any] = lambda _given: None
        self.started = asyncio.Event()
        self.log: list[str] = []
        self._url = f"sqlite:///{directory}/shop.db"

    def add(self, *, name: str = "work", values: bool = False, **given: Any) -> Callable[..., Any]:
        """Register the handler, and return it."""

        def work(it: Any, *_: Any) -> Any:
            return self.behave(it)

        async def work_async(it: Any, *_: Any) -> Any:
            self.started.set()
            returned = self.behave(it)
            return await returned if isinstance(returned, Awaitable) else returned

        function: Any = work_async if self.form.coroutines else work
        kind = list[int] if self.form.batches else int
        record = list[Record] if self.form.batches else Record
        if values:
            given["value"] = int
            two = _two_async if self.form.coroutines else _two
            function = two(function)
            function.__annotations__ = {"records": record, "values": kind}
        register = self.app.batch_handler if self.form.batches else self.app.handler
        decorated: Callable[..., Any] = register("orders", name=name, group="g", **given)(function)
        return decorated

    def middleware(self) -> None:
        if self.form.batches:
            around: Any = self.app.middleware(around="batches")
        else:
            around = self.app.middleware

        def passing(given: Any, call_next: Called) -> Any:
            return call_next(given)

        async def passing_async(given: Any, call_next: Called) -> Any:
            return await call_next(given)

        around(passing_async if self.form.coroutines else passing)

    def once(self) -> Once:
        url = self._url
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        url = url.replace("sqlite", "sqlite+aiosqlite")
        is_async = self.form.coroutines
        once = Once(create_async_engine(url, poolclass=sa.NullPool) if is_async else engine)
        once.tables.metadata.create_all(engine)
        return once

    def worker(self, **keys: Any) -> PlannedWorker:
        return TestApp(
            self.app, config(all={"handler": [*self.app.handlers], **keys})
        ).plan.workers[0]

    def call(self, layers: Sequence[CallLayer] = (), **keys: Any) -> Called:
        return self.app.calls_of(self.worker(**keys), TOOLS, layers)

    def given(self) -> Any:
        records = [
            Record.of(Note(offset, b"%d" % offset, value=b"7", headers=[("kind", b"a")]), Call())
            for offset in range(3 if self.form.batches else 1)
        ]
        return records if self.form.batches else records[0]

    def outcome(self, call: Called, given: Any) -> Any:
        """Return the result, or why each record failed."""
        try:
            returned = call(given)
            return asyncio.run(_awaited(returned)) if self.form.coroutines else returned
        except BaseException as error:
            return self.reasons(error, given)

    def reasons(self, error: BaseException, given: Any) -> Any:
        """Return what an exception of a call means: results, or why each record failed."""
        if isinstance(error, SortedResults) and not error.failed:
            (_, returned), *_ = error.answers
            return returned
        failed = failed_of(error, given if isinstance(given, list) else [given])
        (_,) = {type(reason) for _, reason in failed}
        return failed[0][1]


def _two(function: Any) -> Any:
    def work(records: Any, values: Any) -> Any:
        return function(records, values)

    return work


def _two_async(function: Any) -> Any:
    async def work(records: Any, values: Any) -> Any:
        return await function(records, values)

    return work


async def _awaited(returned: Awaitable[object]) -> object:
    return await returned


def nothing(it: Handled) -> Called:
    it.add()
    return it.call()


def expiry(it: Handled) -> Called:
    it.add(ttl="1h")
    return it.call()


def routes(it: Handled) -> Called:
    it.add(when=header("kind") == "a")
    it.add(name="others", when=lambda _record: False)
    return it.call()


def once(it: Handled) -> Called:
    it.add(once=it.once())
    return it.call()


def middleware(it: Handled) -> Called:
    it.middleware()
    it.add()
    return it.call()


def decoding(it: Handled) -> Called:
    it.add(values=True)
    return it.call()


def spans(it: Handled) -> Called:
    it.add()
    return it.call([SpansLayer(lambda _faults: LoggedSpans(it.log))])


def of_a_test(it: Handled) -> Called:
    it.add()
    return it.call([Logging(LayerPlace.MIDDLEWARE, it.log)])


def everything(it: Handled) -> Called:
    it.middleware()
    it.add(values=True, ttl="1h", when=header("kind") == "a", once=it.once())
    return it.call([SpansLayer(lambda _faults: LoggedSpans(it.log))])


LAYERS = [nothing, expiry, routes, once, middleware, decoding, spans, of_a_test, everything]
of_every_form = pytest.mark.parametrize("form", FORMS, ids=str)
of_every_layer = pytest.mark.parametrize("layered", LAYERS)


@contextmanager
def ending_in(it: Handled, *errors: str) -> Iterator[None]:
    """Expect these errors at the end of a call, if its layers have a log."""
    yield
    if it.log:
        assert it.log[-1].split()[-1] in errors


@of_every_form
def test_a_handler_without_layers_is_what_the_slot_calls(form: CallForm, tmp_path: Path) -> None:
    it = Handled(form, tmp_path)
    function = it.add()
    assert it.call() is function
    assert it.call(concurrency=8, stall={"after": "5s"}) is function


@of_every_form
@of_every_layer
def test_a_layer_hands_on_what_the_handler_returns(
    form: CallForm, layered: Callable[[Handled], Called], tmp_path: Path
) -> None:
    it = Handled(form, tmp_path)
    call, given, seen = layered(it), it.given(), list[Any]()
    it.behave = seen.append
    assert it.outcome(call, given) is None
    assert seen == [given]
    if layered in (once, everything):
        return  # results would be rows of an outbox, which these have not
    it.behave = lambda _given: []
    assert it.outcome(call, given) == []


@of_every_form
@of_every_layer
def test_an_exception_passes_through_a_layer_unchanged(
    form: CallForm, layered: Callable[[Handled], Called], tmp_path: Path
) -> None:
    it, error = Handled(form, tmp_path), ConnectionError("not today")

    def fail(_given: object) -> None:
        raise error

    it.behave = fail
    with ending_in(it, "ConnectionError", "SortedResults"):
        assert it.outcome(layered(it), it.given()) is error


@pytest.mark.parametrize("form", [form for form in FORMS if form.coroutines], ids=str)
@of_every_layer
def test_a_cancelled_call_ends_within_its_layers(
    form: CallForm, layered: Callable[[Handled], Called], tmp_path: Path
) -> None:
    it = Handled(form, tmp_path)
    given, ended = it.given(), []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append(True)
            raise

    async def cancelled() -> BaseException:
        task = asyncio.ensure_future(call(given))
        await it.started.wait()
        task.cancel()
        await asyncio.wait([task])
        found = task.exception() if not task.cancelled() else asyncio.CancelledError()
        assert found is not None
        return found

    it.behave = lambda _given: hang()
    call = layered(it)
    with ending_in(it, "CancelledError", "SortedResults"):
        error = asyncio.run(cancelled())
    assert isinstance(it.reasons(error, given), asyncio.CancelledError)
    assert ended == [True]


class Never:
    """It is awaited until the call is thrown away."""

    def __await__(self) -> Iterator[None]:
        yield


@pytest.mark.parametrize("form", [form for form in FORMS if form.coroutines], ids=str)
@pytest.mark.parametrize("layered", [each for each in LAYERS if each not in (once, everything)])
def test_a_call_that_is_thrown_away_with_its_loop_just_ends(
    form: CallForm, layered: Callable[[Handled], Called], tmp_path: Path
) -> None:
    it = Handled(form, tmp_path)
    it.behave = lambda _given: Never()
    call: Any = layered(it)(it.given())
    call.send(None)
    with ending_in(it, "GeneratorExit"):
        call.close()


@of_every_form
def test_layers_stand_in_the_order_of_their_places(form: CallForm, tmp_path: Path) -> None:
    it = Handled(form, tmp_path)
    places = [place for place in LayerPlace if place is not LayerPlace.ROUTES]
    layers = [Logging(place, it.log) for place in reversed(places)]
    it.add(name="first", when=lambda _record: False)
    it.add(name="second", when=lambda _record: True)
    it.behave = lambda _given: it.log.append("handler")
    it.outcome(it.call(layers), it.given())
    inner = ("ONCE", "MIDDLEWARE", "VALUES", "DECODING")
    names = ["SPANS", "EXPIRY", *(f"{each} second" for each in inner)]
    ends = [f"< {name}" for name in reversed(names)]
    assert it.log == [*(f"> {name}" for name in names), "handler", *ends]


@of_every_form
def test_a_layer_within_another_sees_only_the_calls_that_that_one_makes(
    form: CallForm, tmp_path: Path
) -> None:
    it = Handled(form, tmp_path)
    it.add(ttl="1h")
    layers = [Logging(LayerPlace.SPANS, it.log), Logging(LayerPlace.MIDDLEWARE, it.log)]
    late = CallTools(TOOLS.is_copy, lambda: TOOLS.wall_ms() + 7_200_000)
    it.outcome(it.app.calls_of(it.worker(), late, layers), it.given())
    raised = "SortedResults" if form.batches else "Expired"
    assert it.log == ["> SPANS", f"! SPANS {raised}"]


LOG: list[str] = []
FORKED = App("forked")


@FORKED.handler("orders", group="g", pool="processes")
def forked(_order: Record) -> None:
    LOG.append("handler")


class InChild:
    """Makes the layer of a test in child processes."""

    def __init__(self, *, begins: bool):
        self._begins = begins

    def begin(self) -> Logging | None:
        return Logging(LayerPlace.SPANS, LOG) if self._begins else None

    @contextmanager
    def around(self, lifespan: AbstractContextManager[Any]) -> Iterator[Any]:
        LOG.append("first")
        with lifespan as state:
            yield state
        LOG.append("last")


@pytest.mark.parametrize("begins", [False, True])
def test_a_child_process_makes_the_layers_that_say_how(*, begins: bool) -> None:
    layers = [Logging(LayerPlace.SPANS, []), Logging(LayerPlace.ONCE, [])]
    layers[0].in_children = InChild(begins=begins)
    plan = TestApp(FORKED, config(forked={})).plan
    child_spec = child_spec_of(FORKED, plan, plan.workers[0]).within(layers)
    LOG.clear()
    tools = pickle.loads(pickle.dumps(child_spec))()  # noqa: S301 - our own
    with tools.lifespan:
        tools.caller.handler(Record.of(Note(1), Call()))
    around = (["first", "> SPANS"], ["< SPANS", "last"]) if begins else ([], [])
    assert [*around[0], "handler", *around[1]] == LOG
