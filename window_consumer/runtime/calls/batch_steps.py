"""Layers around batch handlers, written once for functions and for coroutines.

A layer is a generator over its calls: it yields a call, receives the result or the exception, and
returns or raises the layer's own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from window_consumer.model.record import Record
from window_consumer.runtime.calls.batch_calls import BatchHandler

__handler_steps__ = True  # its frames are not shown, see error_report.py

Steps = Generator[Callable[[], Any], Any, object]
Layer = Callable[[list[Record]], Steps]


def layered(layer: Layer, *, coroutines: bool) -> BatchHandler:
    """Return a layer as a batch handler; as a coroutine function around coroutine handlers."""
    if not coroutines:
        return lambda records: _called(layer(records))

    async def call(records: list[Record]) -> object:
        return await _awaited(layer(records))

    return call


def _called(steps: Steps) -> object:
    try:
        call = next(steps)
        while True:
            try:
                answer = call()
            except BaseException as error:
                call = steps.throw(error)
            else:
                call = steps.send(answer)
    except StopIteration as end:
        return end.value


async def _awaited(steps: Steps) -> object:
    try:
        call = next(steps)
        while True:
            try:
                answer = await call()
            except BaseException as error:
                call = steps.throw(error)
            else:
                call = steps.send(answer)
    except StopIteration as end:
        return end.value
