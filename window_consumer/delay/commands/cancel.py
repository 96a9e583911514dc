"""``window-consumer delay cancel``: prevents the delivery of a record."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from window_consumer.cli import options as common
from window_consumer.cli.logs import set_up
from window_consumer.cli.output import OK, explain, print_result
from window_consumer.config import Mask
from window_consumer.delay.commands.service import ConfiguredService
from window_consumer.model.errors import UsageError, WindowConsumerError
from window_consumer.model.produce import cancellation
from window_consumer.plan.feature_list import FeatureList


@click.command("cancel")
@common.config
@common.overrides
@click.option("--id", "record_id", required=True, metavar="ID", help="The record's wc-id.")
@click.option(
    "--at",
    "at_ms",
    type=common.time_param(1000),
    metavar="TIME",
    help="When the record is due, such as 2026-11-21T10:00 (UTC), or a later time; the"
    " cancellation is dropped afterwards. [default: delay.max from now]",
)
@common.short_start_timeout
@common.json_option
@common.features
def cancel_command(  # noqa: PLR0913 - an argument for each option
    *,
    config: Path,
    overrides: Sequence[str],
    record_id: str,
    at_ms: int | None,
    start_timeout: float,
    as_json: bool,
    features: FeatureList,
) -> int:
    """Prevent the delivery of the delayed record with this id.

    The cancellation must arrive a second before the record is due. Once the command ends, it is
    safe in Kafka. The command cannot know whether a record with this id is waiting; for an
    unknown id it changes nothing.
    """
    formatter = set_up("text", "warning")
    service = ConfiguredService.load(config, overrides, features)
    mask = formatter.mask = Mask(service.loaded.secrets)
    try:
        due = None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC)
        try:
            record = cancellation(record_id, due, topic=service.section.topic)
        except ValueError as error:
            raise UsageError(f"--id: {error}") from error
        service.send(record, "delay-cancel", start_timeout)
    except WindowConsumerError as error:
        return explain(error, mask)
    text = f"cancelled, if it waits and is not due within a second: {record_id}"
    print_result({"cancelled": record_id}, text, as_json=as_json)
    return OK
