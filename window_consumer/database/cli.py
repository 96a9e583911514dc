"""``window-consumer outbox``: relay the rows of an outbox, and manage those Kafka refuses."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from window_consumer.cli import options as common
from window_consumer.cli.logs import set_up
from window_consumer.cli.output import FAILED, OK, duration, explain, print_result
from window_consumer.cli.signals import Signals
from window_consumer.config import LoadedConfig, Mask, load
from window_consumer.database import require_sqlalchemy
from window_consumer.database.outbox.config import OutboxConfig
from window_consumer.kafka.client_log import ClientLog
from window_consumer.model.errors import UsageError
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.clients import check_tokens
from window_consumer.plan.start_timeout import LOGGER

if TYPE_CHECKING:
    import sqlalchemy as sa

    from window_consumer.database.outbox.setup import OutboxDatabase

_CHECK_S = 0.2
_LISTED = 1_000

Action = Callable[["OutboxDatabase", "sa.Connection"], int]


@click.group("outbox")
def outbox_group() -> None:
    """Relay the rows of an outbox to Kafka, and manage those that Kafka refuses."""


@outbox_group.command("run")
@common.config
@common.overrides
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text")
def run_command(config: Path, overrides: tuple[str, ...], log_format: Any) -> int:
    """Relay until SIGTERM; several relays may run."""
    formatter = set_up(log_format, "info")
    loaded = _loaded(config, overrides)
    formatter.mask = mask = Mask(loaded.secrets)
    signals = Signals.install()
    try:
        _check_tokens(loaded)
        from window_consumer.database.outbox.startup import start_relay  # noqa: PLC0415 - SQLAlchemy is optional

        relay = start_relay(loaded.config, ClientLog(LOGGER.getChild("client"), mask), None)
    except Exception as error:
        return explain(error, mask)
    table = loaded.config.section(OutboxConfig).table
    LOGGER.info("outbox: relaying %s", table, extra={"event": LogEvent.OUTBOX_STARTED})
    while not signals.stop.wait(_CHECK_S):
        if not relay.is_alive():
            return FAILED
    relay.stop()
    figures = relay.relay.figures()
    LOGGER.info(
        "outbox: stopped; %d rows sent", figures.sent, extra={"event": LogEvent.OUTBOX_STOPPED}
    )
    return OK


@outbox_group.command("status")
@common.config
@common.overrides
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status_command(config: Path, overrides: tuple[str, ...], *, as_json: bool) -> int:
    """Count the rows that are waiting, refused by Kafka, or kept after publishing."""

    def action(database: OutboxDatabase, connection: sa.Connection) -> int:
        counts = database.store.counts(connection)
        found = {
            "table": database.config.table,
            "waiting": counts.waiting,
            "delayed": counts.delayed,
            "blocked": counts.blocked,
            "failed": counts.failed,
            "published": counts.published,
            "oldest_s": round(counts.oldest_s, 3),
        }
        if as_json:
            click.echo(json.dumps(found, indent=2))
            return OK
        click.echo(
            f"{counts.waiting} waiting, the oldest for {duration(counts.oldest_s)};"
            f" {counts.delayed} delayed, {counts.blocked} blocking their keys,"
            f" {counts.failed} failed, {counts.published} published and kept"
        )
        return OK

    return _with_database(config, overrides, action)


@outbox_group.command("list")
@common.config
@common.overrides
@click.option("--failed", is_flag=True, required=True, help="Rows that Kafka has refused.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=_LISTED, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list.")
def list_command(
    config: Path, overrides: tuple[str, ...], *, failed: bool, limit: int, as_json: bool
) -> int:
    """List rows that Kafka has refused: those that block their keys, and those given up."""
    del failed  # the only list so far

    def action(database: OutboxDatabase, connection: sa.Connection) -> int:
        rows = database.store.refused(connection, limit)
        if as_json:
            click.echo(
                json.dumps(
                    [
                        {
                            "id": str(row.id),
                            "topic": row.topic,
                            "key": None if row.key is None else row.key.decode("utf-8", "replace"),
                            "status": row.status,
                            "attempts": row.attempts,
                            "created_at": row.created_at.isoformat(),
                            "last_error": row.last_error,
                        }
                        for row in rows
                    ],
                    indent=2,
                )
            )
            return OK
        for row in rows:
            key = "" if row.key is None else f" key {row.key!r}"
            click.echo(
                f"{row.id}  {row.status:<7}  {row.topic}{key}, {row.attempts} attempts:"
                f" {row.last_error}"
            )
        if not rows:
            click.echo("no refused rows")
        return OK

    return _with_database(config, overrides, action)


@outbox_group.command("retry")
@common.config
@common.overrides
@click.argument("ids", nargs=-1, type=click.UUID)
@click.option("--all", "every", is_flag=True, help="All rows that Kafka has refused.")
@common.json_option
def retry_command(
    config: Path,
    overrides: tuple[str, ...],
    ids: tuple[uuid.UUID, ...],
    *,
    every: bool,
    as_json: bool,
) -> int:
    """Send refused rows again now: those with these ids, or all."""
    chosen = _chosen(ids, every=every)

    def action(database: OutboxDatabase, connection: sa.Connection) -> int:
        count = database.store.retry(connection, chosen)
        print_result({"retried": count}, f"{count} rows will be sent again", as_json=as_json)
        return OK

    return _with_database(config, overrides, action)


@outbox_group.command("skip")
@common.config
@common.overrides
@click.argument("ids", nargs=-1, type=click.UUID)
@click.option("--all", "every", is_flag=True, help="All rows that block their keys.")
@common.json_option
def skip_command(
    config: Path,
    overrides: tuple[str, ...],
    ids: tuple[uuid.UUID, ...],
    *,
    every: bool,
    as_json: bool,
) -> int:
    """Give up rows that block their keys: later rows of these keys are sent."""
    chosen = _chosen(ids, every=every)

    def action(database: OutboxDatabase, connection: sa.Connection) -> int:
        count = database.store.skip(connection, chosen)
        print_result({"skipped": count}, f"{count} rows marked as failed", as_json=as_json)
        return OK

    return _with_database(config, overrides, action)


@outbox_group.command("ddl")
@common.config
@common.overrides
def ddl_command(config: Path, overrides: tuple[str, ...]) -> int:
    """Print the SQL that creates the table, without connecting to the database."""
    click.echo(_database(_loaded(config, overrides)).ddl())
    return OK


def _chosen(ids: tuple[uuid.UUID, ...], *, every: bool) -> list[uuid.UUID] | None:
    if bool(ids) == every:
        raise UsageError("name rows by their ids, or use --all, not both")
    return None if every else list(ids)


def _loaded(config: Path, overrides: tuple[str, ...]) -> LoadedConfig:
    return load(
        config, overrides=overrides, sections=common.feature_list().sections, only_section="outbox"
    )


def _database(loaded: LoadedConfig) -> OutboxDatabase:
    require_sqlalchemy("outbox")
    from window_consumer.database.outbox.setup import OutboxDatabase  # noqa: PLC0415 - SQLAlchemy is optional

    return OutboxDatabase.of(loaded.config.section(OutboxConfig))


def _check_tokens(loaded: LoadedConfig) -> None:
    require_sqlalchemy("outbox")
    from window_consumer.database.outbox.setup import producer_properties  # noqa: PLC0415 - SQLAlchemy is optional

    check_tokens(producer_properties(loaded.config), None, loaded.where(("kafka",)))


def _with_database(config: Path, overrides: tuple[str, ...], action: Action) -> int:
    """Check the table and call ``action`` in a transaction; return the exit code."""
    loaded = _loaded(config, overrides)
    database = _database(loaded)
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415 - SQLAlchemy is optional

    from window_consumer.database.connection_errors import refusal_of  # noqa: PLC0415 - likewise
    from window_consumer.database.outbox.setup import OUTBOX  # noqa: PLC0415 - likewise

    mask = Mask(loaded.secrets)
    try:
        with database.engine.begin() as connection:
            database.check_table(connection)
            return action(database, connection)
    except SQLAlchemyError as error:
        return explain(refusal_of(error, database.engine.url, OUTBOX) or error, mask)
    except UsageError as error:
        return explain(error, mask)
    finally:
        database.engine.dispose()
