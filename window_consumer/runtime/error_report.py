"""What headers and logs report of an exception: cheap, bounded, with secrets masked.

What handlers raise may quote records. Its text passes the application's redactor or is omitted, and
fields that ``mask`` hides stay hidden. The framework's own messages never quote a record.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import CodeType, FrameType, TracebackType
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

_NOT_THE_USERS = (
    str(Path(__file__).parents[1]),
    contextlib.__file__,
    *(path for module in (asyncio, concurrent.futures) for path in module.__path__),
)
"""The files of frames between the supervisor and the lifespan."""

_PACKAGE = f"{Path(__file__).parents[1]}/"
_BETWEEN = ("runtime/calls/result_guard.py", "plan/middleware.py")
"""Modules whose frames lie between middleware and handler."""

_FORMER_FILES = {
    "runtime/calls/result_guard.py": "owed.py",
    "runtime/calls/steps.py": "batch_steps.py",
}
_FORMER_NAMES = {
    "runtime/calls/layer.py:_sifted": "batch_layers.py:with_batch_expiry.<locals>.steps",
    "runtime/calls/layer.py:called_without": None,
    "plan/handler_types/parameters.py:Parameters._decoded": (
        "batch_parameters.py:BatchParameters.called_with.<locals>.steps"
    ),
    "plan/middleware.py:_around.<locals>.call": "handlers.py:_wrap.<locals>.call",
    "plan/middleware.py:_call_function": "handlers.py:_call_layer",
}
"""Functions under the names that they had when fingerprints first contained them; None for those
that did not exist. Fingerprints must survive our renames."""

_CACHED_PLACES = 256
_MAX_FRAMES = 50
_MAX_CHAIN = 5

LAYER = "__handler_layer__"
"""The global of modules whose frames lie between a slot's loop and the handlers."""

STEPS = "__handler_steps__"
"""The global of the module that runs layers. Its frames, and those of layers within it, are not
shown; they remain in fingerprints, which stay what they are."""

SLOT = "__handler_slot__"
"""The global of the module that holds a slot's loop."""

Place = tuple[tuple[CodeType, int], ...]

_Kind = tuple[tuple[type[BaseException], ...], Place]
"""The classes of an exception and its causes, and where each was raised."""

Where = Sequence[tuple[FrameType, int]]
"""Frames with their lines, the innermost last."""

_OUR_WORDS = (NotCalled, StalledError, LeaseExpiredError, ProcessDiedError, ProcessCrashedError)

Messages = Literal["full", "class"]
"""Whether reports contain the texts of exceptions, or only their classes and positions."""

Redact = Callable[[str], object]
"""Returns a text without confidential parts. If it raises or returns no text, the text is
withheld."""

Hide = Callable[[str, Sequence[Message]], str]
"""Returns a text without the hidden fields of the records of the call that raised it."""

Lines = Sequence[traceback.FrameSummary]
"""Frames as another process reports them."""

Frames = Sequence[tuple[FrameType, int] | traceback.FrameSummary]
"""Frames of this process, or of another."""


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
        key = (tuple(map(type, chain)), _place(chain))
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _CACHED_PLACES:
                self._known.clear()
            name = class_name(type(error))
            known = (name, self._stack(chain), fingerprint(name, _digest_of(chain)))
            self._known[key] = known
        name, stack, print_ = known
        return Fault(name, self._text(error, records), stack, print_)

    def stalled(
        self, where: Where | Lines, seconds: float, handler: str = "", note: str = ""
    ) -> Failure:
        """Describe a call that has not returned after ``seconds``, and where it stands.

        ``note`` is appended to the description.
        """
        error = StalledError(f"the call had not returned after {seconds:.1f} s{note}")
        digest = _digest(map(_frame_name, where))
        texts = formatted(shown_part(where)[-_MAX_FRAMES:])
        name = class_name(type(error))
        stack = self._mask("".join(texts)) or "the thread is gone\n"
        return Failure(error, Fault(name, str(error), stack, fingerprint(name, digest)), handler)

    def _text(self, error: BaseException, records: Sequence[Message]) -> str:
        """Return the part of an exception's text that may be reported."""
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
        parts = []
        for error in chain:
            trace = _without_ours(error.__traceback__, steps=True)
            frames = traceback.StackSummary.from_list(
                each
                for each in traceback.extract_tb(trace, limit=-_MAX_FRAMES)
                if each.filename.removeprefix(_PACKAGE) not in _BETWEEN
            )
            parts.append(f"{class_name(type(error))}:\n{''.join(frames.format())}")
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


def _without_ours(trace: TracebackType | None, *, steps: bool = False) -> TracebackType | None:
    """Drop the frames of the slot's loop and its layers, which begin every stack.

    With ``steps`` those of the module that runs layers, too.
    """
    ours = True  # the slot's loop
    while ours and trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
        names = trace.tb_frame.f_globals
        ours = LAYER in names or (steps and STEPS in names)
    return trace


def handlers_part(frame: FrameType | None) -> Where:
    """Return the frames of a slot's thread below its loop and the layers, the innermost last."""
    if frame is None:
        return []
    frames = list(traceback.walk_stack(frame))[::-1]
    ours = [
        index
        for index, (each, _) in enumerate(frames)
        if LAYER in each.f_globals or SLOT in each.f_globals
    ]
    return frames[ours[-1] + 1 :] if ours else frames


def shown_part(where: Frames) -> Frames:
    """Return the frames from the handler on, as they are shown; all where there is no handler."""
    is_foreign = any(isinstance(each, traceback.FrameSummary) for each in where)
    files = _files_with(LAYER, STEPS) if is_foreign else set()
    below = 0
    for index, each in enumerate(where):
        if isinstance(each, traceback.FrameSummary):
            ours = each.filename in files
        else:
            ours = LAYER in each[0].f_globals or STEPS in each[0].f_globals
        if ours:
            below = index + 1
    return where[below:] or where


def _files_with(*markers: str) -> set[object]:
    """Return the files of loaded modules with one of these globals."""
    # sys.modules may contain any object, and None for modules that must not be imported.
    modules = [getattr(each, "__dict__", {}) for each in list(sys.modules.values())]
    return {each.get("__file__") for each in modules if any(marker in each for marker in markers)}


def formatted(where: Frames) -> list[str]:
    """Return the lines of frames as Python prints them."""
    frames = [each for each in where if not isinstance(each, traceback.FrameSummary)]
    lines = [each for each in where if isinstance(each, traceback.FrameSummary)]
    summary = traceback.StackSummary.extract(iter(frames)) if frames else None
    return (summary or traceback.StackSummary.from_list(lines)).format()


def _frame_name(each: tuple[FrameType, int] | traceback.FrameSummary) -> str | None:
    if isinstance(each, traceback.FrameSummary):
        return f"{each.filename.rpartition('/')[2]}:{each.name}"
    return _function_name(each[0].f_code)


def handlers_lines(lines: Lines) -> Lines:
    """Return the part of another process's stack below the slot's loop and the layers."""
    files = _files_with(LAYER, SLOT)
    ours = [index for index, each in enumerate(lines) if each.filename in files]
    return lines[ours[-1] + 1 :] if ours else lines


def _place(chain: Sequence[BaseException]) -> Place:
    """Return where exceptions were raised; equal for equal stacks."""
    # Kept minimal: with 1 % of calls failing, this is half of what a failure costs.
    positions = []
    for error in chain:
        trace = _without_ours(error.__traceback__)
        frames = 0
        while trace is not None and frames < _MAX_FRAMES:
            positions.append((trace.tb_frame.f_code, trace.tb_lineno))
            trace = trace.tb_next
            frames += 1
    return tuple(positions)


def _digest_of(chain: Sequence[BaseException]) -> str:
    """Name the functions of a stack without line numbers, which change with each version."""
    return _digest(_function_name(code) for code, _ in _place(chain))


def _digest(names: Iterable[str | None]) -> str:
    return "|".join(name for name in names if name is not None)


def _function_name(code: CodeType) -> str | None:
    """Return a function's name in fingerprints, None if it is in none."""
    place = code.co_filename.removeprefix(_PACKAGE)
    name = f"{place}:{code.co_qualname}"
    if name in _FORMER_NAMES:
        return _FORMER_NAMES[name]
    file = _FORMER_FILES.get(place, place.rpartition("/")[2])
    return f"{file}:{code.co_qualname}"


def lifespan_error(error: BaseException, what: str = "failed") -> LifespanError:
    """Return an error that names the user's line; its stack stays with the cause."""
    error = meant_by(error)
    frames = traceback.extract_tb(error.__traceback__)
    users = [each for each in frames if not each.filename.startswith(_NOT_THE_USERS)]
    place = f" at {users[0].filename}:{users[0].lineno}" if users else ""
    failure = LifespanError(f"@app.lifespan {what}{place}: {class_name(type(error))}: {error}")
    failure.__cause__ = error
    return failure
