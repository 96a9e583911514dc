"""Coroutines and plain functions: which of them can surround which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from window_consumer.app.handlers import Layer
from window_consumer.app.plan import PlannedWorker
from window_consumer.model.errors import UsageError


def refuse_mixtures(workers: Iterable[PlannedWorker], layers: Sequence[Layer]) -> None:
    """Raise UsageError for middleware that cannot surround a handler that it is for.

    A plain function that calls a coroutine function gets an object back and leaves before anything
    has run; a coroutine needs an event loop, which the threads of plain handlers do not have.
    """
    for worker in workers:
        whose = f"worker {worker.name} ({worker.handler_names})"
        refuse = refuse_batch_mixture if worker.is_batch else refuse_mixture
        refuse(whose, layers, coroutines=worker.is_async)


def refuse_mixture(whose: str, layers: Sequence[Layer], *, coroutines: bool) -> None:
    """Raise UsageError where one of these cannot surround handlers of a kind."""
    for layer in layers:
        if layer.is_for(coroutines=coroutines) and layer.is_async != coroutines:
            raise UsageError(_refusal(whose, layer, coroutines=coroutines))


def refuse_batch_mixture(whose: str, layers: Sequence[Layer], *, coroutines: bool) -> None:
    """Raise UsageError for middleware that batch handlers of a kind would miss, or cannot have."""
    for layer in layers:
        if layer.around is None:
            raise UsageError(
                f"@app.middleware {layer.name} gets one record a call, and {whose} has batch"
                ' handlers: decorate it with @app.middleware(around="functions"), or'
                ' "coroutines", and write another one, def m(records, call_next), with'
                ' @app.middleware(around="batches") for what batch handlers need'
            )
        if layer.around == "batches" and layer.is_async != coroutines:
            kind = "a plain function" if coroutines else "a coroutine function"
            needed = "async def" if coroutines else "def"
            raise UsageError(
                f"@app.middleware {layer.name} is {kind}, and the batch handlers of {whose} are"
                f" {'coroutines' if coroutines else 'plain functions'}: write it with {needed}"
            )


def _refusal(whose: str, layer: Layer, *, coroutines: bool) -> str:
    if coroutines:
        kind, theirs, own = "a plain function", "coroutines", "functions"
        to_do = "write it as async def, with await call_next(record)"
    else:
        kind, theirs, own = "a coroutine function", "plain functions", "coroutines"
        to_do = "write it as a plain function"
    return (
        f"@app.middleware {layer.name} is {kind}, and the handlers of {whose} are {theirs}:"
        f" {to_do}; where the application has both kinds of handlers, decorate it with"
        f' @app.middleware(around="{own}") and write another one for the {theirs}'
    )
