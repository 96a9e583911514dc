"""Describes exceptions for headers and logs: cheap, bounded, with secrets masked.

Exceptions of handlers may quote records. Their text passes the application's redactor or is
omitted, and fields that ``mask`` hides stay hidden. The framework's own messages never quote a
record.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from window_consumer.model.errors import (
    LeaseExpiredError,
    LifespanError,
    NotCalled,
    ProcessCrashedError,
    ProcessDiedError,
    StalledError,
    meant_by,
)
from window_consumer.model.fault import Failure, Fault, fingerprint
from window_consumer.model.record import Message
from window_consumer.model.record_contents import escaped
from window_consumer.runtime import stack

_NOT_THE_USERS = (
    str(Path(__file__).parents[1]),
    contextlib.__file__,
    *(path for module in (asyncio, concurrent.futures) for path in module.__path__),
)
"""The files of frames between the supervisor and the lifespan."""

_CACHED_PLACES = 256
_MAX_CHAIN = 5

_Kind = tuple[tuple[type[BaseException], ...], stack.Place]
"""The classes of an exception and its causes, and where each was raised."""

_OUR_WORDS = (NotCalled, StalledError, LeaseExpiredError, ProcessDiedError, ProcessCrashedError)

Messages = Literal["full", "class"]
"""Whether reports contain the texts of exceptions, or only their classes and positions."""

Redact = Callable[[str], object]
"""Removes confidential parts of a text. If it raises or returns no text, the text is withheld."""

Hide = Callable[[str, Sequence[Message]], str]
"""Returns a text without the hidden fields of the records of the call that raised it."""


class ErrorReports:
    """Turns exceptions of handlers into Failures and caches what depends only on their position.

    Any slot may call it: dictionary operations are atomic, and at worst a position is described
    twice.
    """

    def __init__(
        self,
        mask: Callable[[str], str] = str,
        redact: Redact | None = None,
        messages: Messages = "full",
        hide: Hide | None = None,
    ):
        """``hide`` removes the hidden fields of quoted records from texts."""
        self._mask = mask
        self._redact = redact
        self._messages = messages
        self._hide = hide
        self._known: dict[_Kind, tuple[str, str, str]] = {}
        """Class, stack and fingerprint, cached by class and position."""

    def failure(
        self, error: BaseException, handler: str = "", records: Sequence[Message] = ()
    ) -> Failure:
        """Describe an exception of a handler and drop its traceback.

        ``records`` are the records of the call. A group with one exception counts as that
        exception, also for the rules.
        """
        chain = _chain(error)
        meant = chain[0]
        fault = self._fault_of(chain, records)
        for each in chain:
            each.__traceback__ = None
        return Failure(meant, fault, "" if isinstance(meant, NotCalled) else handler)

    def fault(self, error: BaseException, records: Sequence[Message] = ()) -> Fault:
        """Describe an exception of a handler, and leave it unchanged."""
        return self._fault_of(_chain(error), records)

    def _fault_of(self, chain: Sequence[BaseException], records: Sequence[Message]) -> Fault:
        error = chain[0]
        place = stack.place_of(chain)
        key = (tuple(map(type, chain)), place)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _CACHED_PLACES:
                self._known.clear()
            name = class_name(type(error))
            known = (name, self._stack(chain), fingerprint(name, stack.function_names(place)))
            self._known[key] = known
        name, shown, print_ = known
        return Fault(name, self._text(error, records), shown, print_)

    def stalled(
        self, where: stack.Where | stack.Lines, seconds: float, handler: str = "", note: str = ""
    ) -> Failure:
        """Describe a call that has not returned after ``seconds``, and its position.

        ``note`` is appended to the description.
        """
        error = StalledError(f"the call had not returned after {seconds:.1f} s{note}")
        name = class_name(type(error))
        shown = self._mask(stack.printed(where, stack.MAX_FRAMES)) or "the thread is gone\n"
        print_ = fingerprint(name, stack.frame_names(where))
        return Failure(error, Fault(name, str(error), shown, print_), handler)

    def _text(self, error: BaseException, records: Sequence[Message]) -> str:
        """Return the reportable part of an exception's text."""
        if isinstance(error, _OUR_WORDS):
            return self._mask(_text_of(error))
        if self._messages == "class":
            return ""
        text = self._mask(_text_of(error))
        if self._hide is not None:
            text = self._hide(text, records)
        if self._redact is None:
            return text
        try:
            redacted = self._redact(text)
        except Exception as failure:
            return f"<withheld: @app.redact raised {class_name(type(failure))}>"
        if not isinstance(redacted, str):
            return f"<withheld: @app.redact returned {type(redacted).__qualname__}, no text>"
        return escaped(redacted)

    def _stack(self, chain: Sequence[BaseException]) -> str:
        parts = (f"{class_name(type(each))}:\n{stack.printed_traceback(each)}" for each in chain)
        return self._mask("which came from ".join(parts))


def _chain(error: BaseException) -> list[BaseException]:
    """Return the exception and its causes in the order in which Python reports them.

    The members of a group count as its causes. A group with one exception follows that one.
    """
    chain: list[BaseException] = []
    left = [error]
    meant = meant_by(error)
    if meant is not error:
        left.insert(0, meant)
    while left and len(chain) < _MAX_CHAIN:
        each = left.pop(0)
        if any(each is known for known in chain):
            continue
        chain.append(each)
        if isinstance(each, BaseExceptionGroup):
            left = [*each.exceptions, *left]
        led_to = _led_to(each)
        if led_to is not None:
            left.insert(0, led_to)
    return chain


def _led_to(error: BaseException) -> BaseException | None:
    if error.__cause__ is not None or error.__suppress_context__:
        return error.__cause__
    return error.__context__


def class_name(kind: type[BaseException]) -> str:
    """Return the dotted name of an exception class; builtins have no module in it."""
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _text_of(error: BaseException) -> str:
    try:
        if isinstance(error, BaseExceptionGroup):
            return f"{escaped(str(error))}: {'; '.join(map(_named, error.exceptions[:_MAX_CHAIN]))}"
        return escaped(str(error))
    except Exception as broken:
        return f"<its text could not be read: {type(broken).__name__}>"


def _named(error: BaseException) -> str:
    return f"{class_name(type(error))}: {_text_of(error)}"


def lifespan_error(error: BaseException, what: str = "failed") -> LifespanError:
    """Return an error that names the user's line; its stack stays with the cause."""
    error = meant_by(error)
    frames = traceback.extract_tb(error.__traceback__)
    users = [each for each in frames if not each.filename.startswith(_NOT_THE_USERS)]
    place = f" at {users[0].filename}:{users[0].lineno}" if users else ""
    failure = LifespanError(f"@app.lifespan {what}{place}: {class_name(type(error))}: {error}")
    failure.__cause__ = error
    return failure
