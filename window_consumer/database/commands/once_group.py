"""``window-consumer once``: the tables of ``once``, and their contents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click

from window_consumer.cli import options as common
from window_consumer.cli.output import (
    OK,
    WRONG_USAGE,
    application_output,
    exits,
    explain,
    print_error,
)
from window_consumer.database.feature import has_once
from window_consumer.model.errors import UsageError
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.loading import load_app

_WAIT_S: Final = 30.0
"""Short, as a person waits for the result."""


@click.group("once")
def once_group() -> None:
    """Print the SQL of the tables of once, and their contents."""


@once_group.command("ddl")
@common.application
@common.config
@common.overrides
def ddl_command(application: str, config: Path, overrides: tuple[str, ...]) -> int:
    """Print the SQL that creates the tables in each database, without connecting."""
    databases, _ = _databases(application, config, overrides)
    for database in databases:
        users = ", ".join(dict.fromkeys(each.config.name for each in database.workers))
        click.echo(f"-- {database.name}, once of {users}")
        click.echo(database.ddl())
    return OK


@once_group.command("status")
@common.application
@common.config
@common.overrides
@click.option(
    "--start-timeout",
    type=common.DURATION,
    default=_WAIT_S,
    metavar="DURATION",
    help="Give up if a database does not respond for this long (exit code 1). [default: 30s]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@exits({WRONG_USAGE: "wrong usage or configuration, or a table is missing or has other columns"})
def status_command(
    application: str,
    config: Path,
    overrides: tuple[str, ...],
    start_timeout: float,
    *,
    as_json: bool,
) -> int:
    """Print the ids and the fences of each database; change nothing."""
    databases, plan = _databases(application, config, overrides)
    from window_consumer.database.findings import statuses_of  # noqa: PLC0415 - SQLAlchemy is optional

    try:
        found = statuses_of(databases, start_timeout)
    except Exception as error:
        return explain(error, plan.mask)
    if as_json:
        click.echo(json.dumps({"databases": [each.as_json() for each in found]}, indent=2))
    else:
        click.echo("\n".join(line for each in found for line in each.in_words()))
    problems = [each.problem for each in found if each.problem is not None]
    if problems:
        print_error(plan.mask("\n".join(problems)), UsageError.code)
    return WRONG_USAGE if problems else OK


def _databases(
    application: str, config: Path, overrides: tuple[str, ...]
) -> tuple[list[Any], AppPlan]:
    """Return the databases of the application's handlers with once; raises UsageError."""
    with application_output():
        plan = load_app(application).plan(config, overrides=overrides)
    if not has_once(plan.workers):
        raise UsageError(f"{application}: no handler has once=")
    from window_consumer.database.once.startup import once_workers  # noqa: PLC0415 - SQLAlchemy is optional
    from window_consumer.database.once.table_contents import once_databases  # noqa: PLC0415 - SQLAlchemy is optional

    return once_databases(once_workers(plan.config, plan.workers)), plan
