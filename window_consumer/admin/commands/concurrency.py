"""``window-consumer concurrency``: show how many calls of a worker run at once, or set it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from window_consumer.admin.cli import command_for, worker_address
from window_consumer.admin.client import Access, AdminAddress, ask, command_worker
from window_consumer.admin.doctor.causes import duration
from window_consumer.cli.options import TextParam, json_option, workers_named
from window_consumer.cli.output import FAILED, OK, exits, print_json
from window_consumer.model.errors import RunError
from window_consumer.model.redaction import printable_line
from window_consumer.runtime.figures.worker_snapshot import WorkerSnapshot

_MOST_DIGITS: Final = 9


def _limit(text: str) -> str:
    is_count = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text) > 0
    if text != "auto" and not is_count:
        raise ValueError(f"{text!r} is not a concurrency: write a whole number from 1, or auto")
    return text


@click.command("concurrency")
@click.argument("limit", metavar="[N|auto]", required=False, type=TextParam("limit", _limit))
@click.option(
    "--worker", "-w", required=True, metavar="W", shell_complete=workers_named, help="The worker."
)
@click.option(
    "--reason", default="", metavar="TEXT", help="The reason, shown beside the concurrency."
)
@json_option
@worker_address
@exits({FAILED: "nothing was changed"})
def concurrency_command(  # noqa: PLR0913 - an argument for each option
    *,
    limit: str | None,
    worker: str,
    reason: str,
    as_json: bool,
    url: str,
    token: str | None,
    authority: Path | None,
) -> int:
    """Show how many calls of a worker run at once in each process, or set it.

    N is at most the concurrency at the worker's start. Running calls end first. It applies until
    `auto`, which returns to the configuration, or until the process ends.
    """
    address, access = AdminAddress.parse(url), Access(token, authority)
    if limit is not None:
        command_worker(worker, f"concurrency/{limit}", address, access, reason)
    found = [each for each in ask(address, access).workers if each.name == worker]
    if not found:
        raise RunError(f"{worker}: there is no such worker at {address}")
    if as_json:
        print_json({"worker": worker, "processes": [_fields(each) for each in found]})
    else:
        click.echo(_text(found))
        if limit not in {None, "auto"}:
            ending = command_for("concurrency auto", worker, url)
            click.echo(f"`{ending}` or a restart ends it")
    return OK


def _text(found: Sequence[WorkerSnapshot]) -> str:
    return "\n".join(
        printable_line(
            f"{f'process {each.process} ' if each.process else ''}{each.name}: {_line(each)}"
        )
        for each in found
    )


def _line(worker: WorkerSnapshot) -> str:
    windows = worker.windows
    if windows is None:
        return "its poll thread does not answer"
    if windows.limit is None:
        return f"{windows.slots}, as configured"
    manual = windows.limit.manual
    how = (
        f"adapted: {windows.limit.why}"
        if manual is None
        else f"set manually{manual.words(duration(manual.seconds))}"
    )
    return f"{windows.limit_now} of {windows.slots}, {how}"


def _fields(worker: WorkerSnapshot) -> dict[str, Any]:
    windows = worker.windows
    if windows is None:
        return {"process": worker.process, "concurrency": None}
    limit = windows.limit
    manual = None if limit is None else limit.manual
    return {
        "process": worker.process,
        "concurrency": windows.limit_now,
        "slots": windows.slots,
        "adapts": limit is not None and limit.adapts,
        "manual": None
        if manual is None
        else {"user": manual.user, "reason": manual.reason, "seconds": manual.seconds},
    }
