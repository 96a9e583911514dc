"""Call the user's handler with the record of a dead letter: in a debugger, or in a test."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from window_consumer.dlq.dead_letter import DeadLetter
from window_consumer.model.errors import UsageError
from window_consumer.plan.definition import AppDefinition
from window_consumer.plan.handlers import HandlerSpec

_LINE = 60
"""Bytes of a value per line of a test."""


def handler_for(letter: DeadLetter, app: AppDefinition, chosen: str | None = None) -> HandlerSpec:
    """Return the chosen handler, or else the one in which the record failed.

    Raises UsageError if the application does not have it.
    """
    handlers: Mapping[str, HandlerSpec] = app.handlers
    name = chosen or letter.handler
    if name is not None and name in handlers:
        return handlers[name]
    there = ", ".join(sorted(handlers)) or "none"
    if chosen is not None:
        raise UsageError(f"--handler {chosen}: the application has no such handler; it has {there}")
    if len(handlers) == 1:
        return next(iter(handlers.values()))
    failed = f"it failed in {letter.handler!r}" if letter.handler else "it names no handler"
    raise UsageError(
        f"{letter.position}: {failed}, but the application has {there}: choose one with --handler"
    )


def as_test(letter: DeadLetter, module: str, app: str, handler: HandlerSpec) -> str:
    """Return a pytest test that calls a handler with the record of a dead letter.

    ``module`` and ``app`` locate the application.
    """
    first = letter.original or letter.position
    arguments = {
        "topic": repr(letter.original_topic or first.topic),
        "partition": repr(first.partition),
        "offset": repr(first.offset),
        "timestamp": repr(letter.original_timestamp),
        "key": _literal(letter.key),
        "value": _literal(letter.value),
        "headers": _headers(letter),
    }
    fields = "".join(f"        {name}={text},\n" for name, text in arguments.items())
    call = f"{app}.handlers[{json.dumps(handler.name)}].call(record)"
    return (
        f'"""{_docstring(letter)}"""\n\n'
        f"{'import asyncio' + chr(10) * 2 if handler.is_async else ''}"
        f"from {module} import {app.split('.', maxsplit=1)[0]}\n"
        "from window_consumer.testing import make_record\n\n\n"
        f"def test_{_identifier(letter.id)}_is_handled() -> None:\n"
        f"    record = make_record(\n{fields}    )\n"
        f"    {f'asyncio.run({call})' if handler.is_async else call}\n"
    )


def _docstring(letter: DeadLetter) -> str:
    lines = [
        f"The record {letter.id}, which became the dead letter {letter.position}.",
        "",
        f"{letter.reason or 'It failed'}: {letter.error_class or 'reason unknown'}",
        "",
        "It holds the record's unchanged key, value and headers.",
        "",
    ]
    return "\n".join(_plain(line) for line in lines)


def _plain(line: str) -> str:
    """Escape foreign text so that it cannot end the docstring."""
    return "".join(c if c.isprintable() and c not in '"\\' else "?" for c in line)


def _identifier(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:60] or "record"


def _headers(letter: DeadLetter) -> str:
    if not letter.own_headers:
        return "[]"
    pairs = "".join(
        f"            ({name!r}, {content!r}),\n" for name, content in letter.own_headers
    )
    return f"[\n{pairs}        ]"


def _literal(data: bytes | None) -> str:
    """Format bytes as a Python literal, long ones over several lines."""
    if data is None or len(data) <= _LINE:
        return repr(data)
    pieces = [data[start : start + _LINE] for start in range(0, len(data), _LINE)]
    return "(\n" + "".join(f"            {piece!r}\n" for piece in pieces) + "        )"
