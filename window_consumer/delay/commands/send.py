"""``window-consumer delay send``: sends one record for delivery at a given time."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import IO, Any

import click

from window_consumer.cli import options as common
from window_consumer.cli.logs import set_up
from window_consumer.cli.options import topics_named
from window_consumer.cli.output import OK, explain, print_result
from window_consumer.config import Mask, format_duration
from window_consumer.delay.commands.service import ConfiguredService
from window_consumer.delay.request import Targets, request_of
from window_consumer.model import headers as names
from window_consumer.model.errors import NotCalled, UsageError, WindowConsumerError
from window_consumer.model.produce import Produce, checked_id


@click.command("send")
@common.config
@common.overrides
@click.option(
    "--to",
    "target",
    required=True,
    metavar="TOPIC",
    shell_complete=topics_named,
    help="The topic to deliver it to.",
)
@click.option(
    "--delay", type=common.DURATION, metavar="DURATION", help="How long to wait, such as 30m."
)
@click.option(
    "--at",
    "at_ms",
    type=common.time_param(1000),
    metavar="TIME",
    help="When to deliver it, such as 2026-11-21T10:00 (UTC); at once if that is past.",
)
@click.option("--key", metavar="TEXT", help="The record's key. [default: none]")
@click.option("--value", metavar="TEXT", help="The record's value. [default: none]")
@click.option(
    "--value-file", type=click.File("rb"), metavar="FILE", help="A file with the value; - is stdin."
)
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header; may be repeated."
)
@click.option(
    "--id",
    "record_id",
    metavar="ID",
    help="Its wc-id, by which it can be cancelled. [default: a new one]",
)
@common.short_start_timeout
@common.json_option
@common.features
def send_command(**options: Any) -> int:
    """Send one record through the delay service of a configuration.

    The service's own checks apply. Once the command ends, the record is safe in Kafka. The
    service need not be running, but must have run once to create its topic.
    """
    formatter = set_up("text", "warning")
    record_id = options["record_id"]
    if record_id is None:
        record_id = str(uuid.uuid4())
    headers = _headers(options, record_id)
    value = _value(options["value"], options["value_file"])
    service = ConfiguredService.load(options["config"], options["overrides"], options["features"])
    mask = formatter.mask = Mask(service.loaded.secrets)
    try:
        at_ms = _checked(service, headers)
        key = options["key"]
        record = Produce(service.section.topic, key, value, headers=headers)
        service.send(record, "delay-send", options["start_timeout"])
    except WindowConsumerError as error:
        return explain(error, mask)
    due = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    text = f"to be delivered to {options['target']} at {due}, with the id {record_id}"
    fields = {"id": record_id, "to": options["target"], "due": due}
    print_result(fields, text, as_json=options["as_json"])
    return OK


def _headers(options: Mapping[str, Any], record_id: str) -> list[tuple[str, bytes | None]]:
    """Return the record's headers; raise a click.UsageError for invalid ones."""
    delay_s, at_ms = options["delay"], options["at_ms"]
    if (delay_s is None) == (at_ms is None):
        raise click.UsageError("give either --delay or --at")
    found: list[tuple[str, bytes | None]] = []
    for pair in options["headers"]:
        name, is_pair, value = pair.partition("=")
        if not (name and is_pair):
            raise click.UsageError(f"--header {pair}: write NAME=VALUE")
        if name.startswith(names.PREFIX):
            raise click.UsageError(
                f"--header {name}: names that begin with {names.PREFIX} are reserved"
            )
        found.append((name, value.encode()))
    try:
        found.append((names.ID, checked_id(record_id)))
    except ValueError as error:
        raise click.UsageError(f"--id: {error}") from None
    found.append((names.DELIVER_TO, options["target"].encode()))
    if at_ms is None:
        found.append((names.DELAY, b"%d" % round(delay_s * 1000)))
    else:
        found.append((names.DELIVER_AT, b"%d" % max(0, at_ms)))
    return found


def _value(text: str | None, file: IO[bytes] | None) -> bytes | None:
    if text is not None and file is not None:
        raise click.UsageError("--value and --value-file are mutually exclusive")
    return file.read() if file is not None else None if text is None else text.encode()


def _checked(service: ConfiguredService, headers: list[tuple[str, bytes | None]]) -> int:
    """Return when the record is due, in ms since 1970; raise UsageError if that is too late."""
    now_ms = round(time.time() * 1000)
    try:
        at_ms = request_of(dict(headers), now_ms, Targets.of(service.loaded.config)).at_ms
    except NotCalled as error:
        raise UsageError(str(error)) from error
    longest_s = service.section.max
    if at_ms - now_ms > longest_s * 1000:
        raise UsageError(f"that is later than delay.max allows, {format_duration(longest_s)}")
    return at_ms
