"""Stacks of calls: which frames are the handler's, how they are printed, their functions' names.

Frames of the slot's loop and of the layers around a handler are neither shown nor part of a place.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Final

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
"""The names of functions when fingerprints first contained them; None for later functions.
Fingerprints must survive our renames."""

MAX_FRAMES: Final = 50
"""The number of innermost frames in reports."""

_LAYER = "__handler_layer__"
"""The global of modules whose frames lie between a slot's loop and the handlers."""

_STEPS = "__handler_steps__"
"""The global of the module that runs layers. Its frames, and those of layers within it, are not
shown; they remain in fingerprints, which stay what they are."""

_SLOT = "__handler_slot__"
"""The global of the module that holds a slot's loop."""

Place = tuple[tuple[CodeType, int], ...]

Where = Sequence[tuple[FrameType, int]]
"""Frames with their lines, the innermost last."""

Lines = Sequence[traceback.FrameSummary]
"""Frames as another process reports them."""

Frames = Sequence[tuple[FrameType, int] | traceback.FrameSummary]
"""Frames of this process, or of another."""


def handlers_part(frame: FrameType | None) -> Where:
    """Return the frames of a slot's thread below its loop and the layers, the innermost last."""
    if frame is None:
        return []
    frames = list(traceback.walk_stack(frame))[::-1]
    ours = [
        index
        for index, (each, _) in enumerate(frames)
        if _LAYER in each.f_globals or _SLOT in each.f_globals
    ]
    return frames[ours[-1] + 1 :] if ours else frames


def handlers_lines(lines: Lines) -> Lines:
    """Return the part of another process's stack below the slot's loop and the layers."""
    files = _files_with(_LAYER, _SLOT)
    ours = [index for index, each in enumerate(lines) if each.filename in files]
    return lines[ours[-1] + 1 :] if ours else lines


def shown_part(where: Frames) -> Frames:
    """Return the frames from the handler on, as they are shown; all where there is no handler."""
    is_foreign = any(isinstance(each, traceback.FrameSummary) for each in where)
    files = _files_with(_LAYER, _STEPS) if is_foreign else set()
    below = 0
    for index, each in enumerate(where):
        if isinstance(each, traceback.FrameSummary):
            ours = each.filename in files
        else:
            ours = _LAYER in each[0].f_globals or _STEPS in each[0].f_globals
        if ours:
            below = index + 1
    return where[below:] or where


def _files_with(*markers: str) -> set[object]:
    """Return the files of loaded modules with one of these globals."""
    # sys.modules may contain any object, and None for modules that must not be imported.
    modules = [getattr(each, "__dict__", {}) for each in list(sys.modules.values())]
    return {each.get("__file__") for each in modules if any(marker in each for marker in markers)}


def printed(where: Frames, most: int | None = None) -> str:
    """Return the frames from the handler on as Python prints them, only the innermost ``most``."""
    shown = shown_part(where)
    shown = shown if most is None else shown[-most:]
    frames = [each for each in shown if not isinstance(each, traceback.FrameSummary)]
    lines = [each for each in shown if isinstance(each, traceback.FrameSummary)]
    summary = traceback.StackSummary.extract(iter(frames)) if frames else None
    return "".join((summary or traceback.StackSummary.from_list(lines)).format())


def printed_traceback(error: BaseException) -> str:
    """Return the traceback of an exception without our frames."""
    trace = _without_ours(error.__traceback__, steps=True)
    frames = traceback.StackSummary.from_list(
        each
        for each in traceback.extract_tb(trace, limit=-MAX_FRAMES)
        if each.filename.removeprefix(_PACKAGE) not in _BETWEEN
    )
    return "".join(frames.format())


def _without_ours(trace: TracebackType | None, *, steps: bool = False) -> TracebackType | None:
    """Drop the frames of the slot's loop and its layers, which begin every stack.

    With ``steps`` those of the module that runs layers, too.
    """
    ours = True  # the slot's loop
    while ours and trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
        names = trace.tb_frame.f_globals
        ours = _LAYER in names or (steps and _STEPS in names)
    return trace


def place_of(chain: Sequence[BaseException]) -> Place:
    """Return where exceptions were raised; equal for equal stacks."""
    # Kept minimal: with 1 % of calls failing, this is half of what a failure costs.
    positions = []
    for error in chain:
        trace = _without_ours(error.__traceback__)
        frames = 0
        while trace is not None and frames < MAX_FRAMES:
            positions.append((trace.tb_frame.f_code, trace.tb_lineno))
            trace = trace.tb_next
            frames += 1
    return tuple(positions)


def function_names(place: Place) -> str:
    """Name the functions of a place without line numbers, which change with each version."""
    return _joined(_function_name(code) for code, _ in place)


def frame_names(where: Frames) -> str:
    """Name the functions of frames likewise."""
    return _joined(map(_frame_name, where))


def _joined(names: Iterable[str | None]) -> str:
    return "|".join(name for name in names if name is not None)


def _frame_name(each: tuple[FrameType, int] | traceback.FrameSummary) -> str | None:
    if isinstance(each, traceback.FrameSummary):
        return f"{each.filename.rpartition('/')[2]}:{each.name}"
    return _function_name(each[0].f_code)


def _function_name(code: CodeType) -> str | None:
    """Return a function's name in fingerprints, None if they omit it."""
    place = code.co_filename.removeprefix(_PACKAGE)
    name = f"{place}:{code.co_qualname}"
    if name in _FORMER_NAMES:
        return _FORMER_NAMES[name]
    file = _FORMER_FILES.get(place, place.rpartition("/")[2])
    return f"{file}:{code.co_qualname}"
