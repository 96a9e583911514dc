"""``window-consumer pause`` and ``resume``: begin and end the pause of a worker."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

import click

from window_consumer.admin.cli import worker_address
from window_consumer.admin.client import Access, AdminAddress, ask, command
from window_consumer.cli.output import OK
from window_consumer.model.errors import RunError

_ATTEMPTS: Final = 3
"""If a replica is later still, the others have obeyed; to ask them again changes nothing."""


@click.command("pause")
@click.option("--worker", "-w", required=True, metavar="W", help="The worker to pause.")
@click.option(
    "--reason", default="", metavar="TEXT", help="Why; shown wherever the pause is shown."
)
@worker_address
def pause_command(
    *, worker: str, reason: str, url: str, token: str | None, authority: Path | None
) -> int:
    """Pause a worker until somebody resumes it, or its process ends.

    No new call starts; running calls end, copies of failed records are written, and the worker
    stays in its group. With several replicas at the address, all of them pause. Exit code 1: there
    is no such worker, or it did not answer.
    """
    query = f"?{urlencode({'reason': reason})}" if reason else ""
    _command(worker, f"pause{query}", AdminAddress.parse(url), Access(token, authority))
    click.echo(f"{worker}: paused; `window-consumer resume --worker {worker}` ends it")
    return OK


@click.command("resume")
@click.option("--worker", "-w", required=True, metavar="W", help="The worker that is paused.")
@worker_address
def resume_command(*, worker: str, url: str, token: str | None, authority: Path | None) -> int:
    """Resume a worker that a person paused, or a new failure (on_new_failure).

    That accepts the failure for this version, as long as the process runs. With several replicas at
    the address, all of them resume. Partitions that were paused one by one stay paused. Exit code
    1: there is no such worker, or it did not answer.
    """
    address, access = AdminAddress.parse(url), Access(token, authority)
    found = [each for each in ask(address, access).workers if each.name == worker]
    accepted = [
        each.text
        for snapshot in found
        if snapshot.windows is not None
        for each in snapshot.windows.findings
        if not each.ends_itself
    ]
    _command(worker, "resume", address, access)
    click.echo(f"{worker}: resumed")
    for text in accepted:
        click.echo(f"accepted for this version: {text}")
    return OK


def _command(worker: str, what: str, address: AdminAddress, access: Access) -> None:
    path = f"/api/workers/{quote(worker, safe='')}/{what}"
    for _ in range(_ATTEMPTS):
        status, answer = command(address, path, access)
        if status != HTTPStatus.GATEWAY_TIMEOUT:
            break
    if status != HTTPStatus.OK:
        why = answer.get("error") if isinstance(answer, dict) else None
        raise RunError(f"{worker}: {why or 'whatever answers there is not a worker'}")
