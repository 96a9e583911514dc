"""``window-consumer dlq debug``: run the handler under pdb with the record of a dead letter."""

from __future__ import annotations

import inspect
import pdb  # noqa: T100 - the debugger is what `dlq debug` is for
import sys
import traceback
import types
from bdb import BdbQuit
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import ExitStack
from typing import Any

import click

from window_consumer.cli.options import application as application_argument
from window_consumer.cli.output import FAILED, OK, exits
from window_consumer.dlq.commands.options import open_dead_letters, topic_options_without_app
from window_consumer.dlq.commands.show import latest
from window_consumer.dlq.dead_letter import DeadLetter
from window_consumer.dlq.handler_call import handler_for
from window_consumer.dlq.reader import DeadLetterTopics
from window_consumer.dlq.source import DeadLetterSource
from window_consumer.dlq.stored_record import StoredMessage
from window_consumer.model.errors import LifespanError, Skip
from window_consumer.model.produce import results_of
from window_consumer.model.record import Call, Record, TopicPartition
from window_consumer.plan.definition import AppDefinition
from window_consumer.plan.handlers import HandlerSpec
from window_consumer.plan.loading import load_app
from window_consumer.runtime.pools.inline_event_loop import InlineEventLoop


class Debugger(pdb.Pdb):
    """Stop at the first line of the called function, and remember whether the user quit.

    After a quit, pdb itself returns as if the handler had returned.
    """

    was_quit = False

    def set_quit(self) -> None:
        """Quit, because the user did or the input ended."""
        self.was_quit = True
        super().set_quit()

    def call(self, function: Callable[..., object], *arguments: object) -> object:
        """Call a function; raise BdbQuit if the user quits."""
        result = self.runcall(function, *arguments)
        self._check()
        return result

    async def call_coroutine(
        self, function: Callable[..., Awaitable[object]], *arguments: object
    ) -> object:
        """Await the result of a coroutine function; raise BdbQuit if the user quits.

        The debugger does not step through what the coroutine awaits: the loop runs without it.
        """
        try:
            return await self._stepped(_coroutine(function(*arguments)))
        finally:
            self._check()

    @types.coroutine
    def _stepped(self, coroutine: Coroutine[Any, Any, object]) -> Generator[object, Any, object]:
        self.reset()
        send: Callable[[Any], object] = coroutine.send
        value: Any = None
        try:
            while True:
                waits_for = self._step(send, value)
                try:
                    send, value = coroutine.send, (yield waits_for)
                except BaseException as error:
                    send, value = coroutine.throw, error
        except StopIteration as end:
            return end.value
        except BdbQuit:
            return None

    def _step(self, send: Callable[[Any], object], value: Any) -> object:
        # A separate function, because pdb stops at every StopIteration below a generator.
        sys.settrace(self.trace_dispatch)
        try:
            return send(value)
        finally:
            sys.settrace(None)

    def _check(self) -> None:
        # Middleware must not mistake a partial call for a complete one: it may commit partial work.
        if self.was_quit:
            raise BdbQuit


def _coroutine(made: Any) -> Coroutine[Any, Any, object]:
    """Return a coroutine for the result of a coroutine function, which may be any awaitable."""

    async def awaited() -> object:
        return await made

    return made if inspect.iscoroutine(made) else awaited()


@click.command("debug")
@click.argument("name", metavar="ID")
@application_argument
@topic_options_without_app
@click.option("--handler", default=None, help="The handler to call. [default: the failed one]")
@exits({FAILED: "the handler raised an exception, or it failed"})
def debug_command(*, name: str, application: str, handler: str | None, **options: Any) -> int:
    """Run the handler on the record of a dead letter, under Python's debugger.

    It stops at the handler's first line (n: next line, c: continue, q: quit), and where an
    exception leaves the handler. The application's lifespan and middleware apply. The command
    itself produces and commits nothing; the handler's own effects are real.
    """
    options["application"] = application
    app = load_app(application)
    found: list[DeadLetter] = []

    def action(_: DeadLetterSource, topics: DeadLetterTopics) -> int:
        found.append(latest(topics, name))
        return OK

    code = open_dead_letters(options, action)
    return _debug(app, handler_for(found[0], app, handler), found[0]) if found else code


def _debug(app: AppDefinition, handler: HandlerSpec, letter: DeadLetter) -> int:
    debugger = Debugger(nosigint=True)

    def stepping(given: Any) -> object:
        return debugger.call(handler.function, *handler.parameters.arguments(given))

    async def stepping_coroutine(given: Any) -> object:
        function: Any = handler.function
        return await debugger.call_coroutine(function, *handler.parameters.arguments(given))

    with ExitStack() as stack:
        loop = stack.enter_context(InlineEventLoop())
        try:
            state = stack.enter_context(app.resources(loop.run))
        except Exception as error:
            raise LifespanError(
                f"the application's lifespan raised {type(error).__name__}: {error}"
            ) from error
        first = letter.original or letter.position
        message = StoredMessage(
            name=TopicPartition(letter.original_topic or first.topic, first.partition),
            at=first.offset,
            timestamp_ms=letter.original_timestamp,
            key_bytes=letter.key,
            value_bytes=letter.value,
            header_pairs=letter.own_headers,
        )
        record = Record.of(message, Call(1, state))
        click.echo(f"{handler.name} ({handler.place}) with {record!r}", err=True)
        try:
            given: Any = [record] if handler.is_batch else record
            innermost = stepping_coroutine if handler.is_async else stepping
            call = app.surrounded(innermost, handler.form)
            returned = loop.run(call(given)) if handler.is_async else call(given)
            results = results_of(returned)
        except BdbQuit:
            return _quit()
        except Skip as skip:
            click.echo(f"the handler skips the record: {skip}", err=True)
            return OK
        except Exception as error:
            trace = error.__traceback__
            click.echo("".join(traceback.format_exception(error)), err=True)
            pdb.post_mortem(trace)
            return FAILED
    if debugger.was_quit:
        return _quit()
    click.echo("the handler returned: the record would be done", err=True)
    for result in results:
        click.echo(f"not produced, because this is not a worker: {result!r}", err=True)
    return OK


def _quit() -> int:
    click.echo("quit: the handler did not run to its end", err=True)
    return OK
