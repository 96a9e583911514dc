"""``window-consumer dlq show``: show one dead letter with all of its metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from window_consumer.cli.output import application_output
from window_consumer.config import MaskRules
from window_consumer.dlq.commands.options import open_dead_letters, topic_options
from window_consumer.dlq.dead_letter import DeadLetter
from window_consumer.dlq.handler_call import as_test, handler_for
from window_consumer.dlq.reader import DeadLetterTopics
from window_consumer.dlq.source import DeadLetterSource
from window_consumer.model.errors import UsageError
from window_consumer.model.redaction import printable
from window_consumer.plan.loading import load_app

_HEX_LINE = 32
_MOST_HEX = 4096
"""The largest number of bytes of a binary value to print."""


@click.command("show")
@click.argument("name", metavar="ID")
@topic_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--unmasked", is_flag=True, help="Show the fields that mask and dlq.mask hide.")
@click.option(
    "--as-test",
    "test",
    is_flag=True,
    help="Write a pytest test that calls the handler of MODULE:APP with this record.",
)
@click.option(
    "--handler", default=None, help="The handler for --as-test. [default: the failed one]"
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Write to this file, which must not exist. [default: stdout]",
)
def show_command(
    *, name: str, as_json: bool, unmasked: bool, test: bool, output: Path | None, **options: Any
) -> int:
    """Show one dead letter: headers, decoded key and value, the stack of its error.

    ID is the id of a record (the latest of its dead letters is shown), or topic/partition/offset of
    the dead letter itself. Fields that mask and dlq.mask name are hidden; a test contains the
    record unmasked.
    """
    handler = options.pop("handler")
    if test and options["application"] is None:
        raise UsageError(
            "--as-test needs the application with the handler: MODULE:APP, or --app MODULE:APP"
        )

    def action(source: DeadLetterSource, topics: DeadLetterTopics) -> int:
        *others, letter = topics.find(name)
        if test:
            with application_output():
                app = load_app(options["application"])
            module, _, attribute = options["application"].partition(":")
            spec = handler_for(letter, app, handler)
            text = as_test(topics.whole(letter), module, attribute or "app", spec)
        else:
            rules = MaskRules() if unmasked or source.config is None else source.config.mask_rules
            view = topics.view(letter, rules)
            also = [str(each.position) for each in others]
            text = _as_json(view, also) if as_json else _as_text(view, also)
            text = source.mask(text)
        _write(text, output)
        return 0

    return open_dead_letters(options, action)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        click.echo(text.rstrip())
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text.rstrip() + "\n")
    except OSError as error:
        raise UsageError(f"--output {output}: {error.strerror}: choose another file") from error


def _as_json(view: dict[str, Any], also: list[str]) -> str:
    return json.dumps({**view, "also": also}, indent=2)


def _as_text(view: dict[str, Any], also: list[str]) -> str:
    return printable("\n".join(_lines(view, also)))


def _lines(view: dict[str, Any], also: list[str]) -> Iterator[str]:
    yield view["dead_letter"]
    for other in also:
        yield f"  (an earlier one of the same record: {other})"
    for label, text in _facts(view):
        yield f"  {label:<12} {text}"
    yield from _content("key", view["key"])
    yield "headers" if view["headers"] else "no headers"
    for name, content in view["headers"]:
        if name not in {"wc-error-stack", "kafka_dlt-exception-stacktrace"}:
            yield f"  {name}: {'null' if content is None else content}"
    yield from _content("value", view["value"])
    if view["error_stack"]:
        yield "stack"
        yield from (f"  {line}" for line in view["error_stack"].splitlines())


def _facts(view: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "record", f"{view['id']}, sent {_time(view['original_timestamp'])}"
    who = [
        f"{word} {view[name]}"
        for word, name in (
            ("group", "group"),
            ("handler", "handler"),
            ("version", "app_version"),
            ("host", "host"),
        )
        if view[name] is not None
    ]
    yield "failed in", f"{', '.join(who) or 'unknown'} (written by {view['written_by']})"
    attempts = view["attempts"]
    calls = "" if attempts is None else f", attempts: {attempts}"
    redrives = f", redrives: {view['redrives']}" if view["redrives"] else ""
    yield "reason", f"{view['reason'] or 'unknown'}{calls}{redrives}"
    message = f": {view['error_message']}" if view["error_message"] else ""
    yield "error", f"{view['error_class'] or 'unknown'}{message}"
    yield "fingerprint", view["fingerprint"] or "unknown"
    yield "first failed", _time(view["first_failure"])
    yield "last failed", _time(view["last_failure"])
    yield "written", _time(view["timestamp"])
    done = view["resolved"]
    if done is not None:
        yield "resolved", f"{done['what']} {_time(done['at_ms'])}, into {done['to']}"
    if view["resolved_unknown"]:
        yield "resolved", f"reading it is not permitted: {view['resolved_unknown']}"
    if view["pointer_to"] is not None:
        yield "value", f"perhaps not copied by the share group; it stood at {view['pointer_to']}"
    if view["value_ref"] is not None:
        yield "value", f"was too large for a copy; it stood at {view['value_ref']}"


def _content(label: str, content: dict[str, Any] | None) -> Iterator[str]:
    if content is None:
        yield f"{label}: null"
        return
    form = content["form"]
    source = f", decoded from {content['decoded_from']}" if "decoded_from" in content else ""
    title = f"{label} ({content['bytes']} bytes, {form}{source})"
    if form == "hidden":
        yield f"{title}: {content['why']}; --unmasked shows it"
        return
    yield title
    if form == "json":
        text = json.dumps(content["json"], indent=2, ensure_ascii=False)
    elif form == "text":
        text = content["text"]
    else:
        text = "\n".join(_hex_lines(content["hex"]))
    if "undecoded" in content:
        yield f"  (not decoded: {content['undecoded']})"
    yield from (f"  {line}" for line in text.splitlines())


def _hex_lines(digits: str) -> Iterator[str]:
    for start in range(0, min(len(digits), 2 * _MOST_HEX), 2 * _HEX_LINE):
        yield digits[start : start + 2 * _HEX_LINE]
    if len(digits) > 2 * _MOST_HEX:
        yield f"... and {len(digits) // 2 - _MOST_HEX} bytes more: --json has all of them"


def _time(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "unknown"
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms since 1970"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def latest(topics: DeadLetterTopics, name: str) -> DeadLetter:
    """Return the latest dead letter of a name, with a referenced value fetched."""
    return topics.whole(topics.find(name)[-1])
