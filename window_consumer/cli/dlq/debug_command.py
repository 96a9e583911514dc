"""``window-consumer dlq debug``: the handler under pdb, with the record of a dead letter."""

from __future__ import annotations

import pdb  # noqa: T100 - the debugger is what this command is for
import traceback
from bdb import BdbQuit
from contextlib import ExitStack
from typing import Any

import click

from window_consumer.app import App
from window_consumer.app.dead_letter_handling import handler_for
from window_consumer.app.dead_letter_source import Source
from window_consumer.app.dead_letters import DeadLetterTopics
from window_consumer.app.handlers import HandlerSpec
from window_consumer.app.loading import load_app
from window_consumer.cli.dlq.debugger import Debugger
from window_consumer.cli.dlq.options import look, topic_options_without_app
from window_consumer.cli.dlq.show_command import latest
from window_consumer.cli.errors import FAILED, OK
from window_consumer.model.dead_letter import DeadLetter
from window_consumer.model.errors import LifespanError, Skip
from window_consumer.model.produce import results_of
from window_consumer.runtime.hand_loop import HandLoop
from window_consumer.testing import make_record


@click.command("debug")
@click.argument("name", metavar="ID")
@click.argument("application", metavar="MODULE:APP")
@topic_options_without_app
@click.option("--handler", default=None, help="The handler to call. [default: the failed one]")
def debug_command(*, name: str, application: str, handler: str | None, **options: Any) -> int:
    """Run the handler on the record of a dead letter, under Python's debugger.

    It stops at the handler's first line (n: next line, c: go on, q: quit), and where an exception
    leaves the handler. Lifespan and middleware are those of the application. Nothing is produced
    or committed by us; what the handler itself does, it does.
    """
    options["application"] = application
    app = load_app(application)
    found: list[DeadLetter] = []

    def action(_: Source, topics: DeadLetterTopics) -> int:
        found.append(latest(topics, name))
        return OK

    code = look(options, action)
    return _debug(app, handler_for(found[0], app, handler), found[0]) if found else code


def _debug(app: App, handler: HandlerSpec, letter: DeadLetter) -> int:
    debugger = Debugger(nosigint=True)

    def stepping(given: Any) -> object:
        return debugger.call(handler.function, *handler.parameters.arguments(given))

    async def stepping_coroutine(given: Any) -> object:
        function: Any = handler.function
        return await debugger.call_coroutine(function, *handler.parameters.arguments(given))

    with ExitStack() as stack:
        loop = stack.enter_context(HandLoop())
        try:
            state = stack.enter_context(app.resources(loop.run))
        except Exception as error:
            raise LifespanError(
                f"the application's lifespan raised {type(error).__name__}: {error}"
            ) from error
        first = letter.original or letter.position
        record = make_record(
            topic=letter.original_topic or first.topic,
            partition=first.partition,
            offset=first.offset,
            timestamp=letter.original_timestamp,
            key=letter.key,
            value=letter.value,
            headers=letter.own_headers,
            state=state,
        )
        click.echo(f"{handler.name} ({handler.place}) with {record!r}", err=True)
        try:
            around = app.batch_surrounded if handler.is_batch else app.surrounded
            given: Any = [record] if handler.is_batch else record
            if handler.is_async:
                call: Any = around(stepping_coroutine, coroutines=True)
                returned = loop.run(call(given))
            else:
                returned = around(stepping)(given)
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
        click.echo(f"not produced, as this is no worker: {result!r}", err=True)
    return OK


def _quit() -> int:
    click.echo("quit: the handler was not run to its end", err=True)
    return OK
