"""``window-consumer resume``: end the pause of a worker."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import quote

import click

from window_consumer.admin.cli import worker_address
from window_consumer.admin.client import Access, AdminAddress, ask, command
from window_consumer.cli.output import OK
from window_consumer.model.errors import RunError

_ATTEMPTS: Final = 3
"""If a replica is later still, the others have resumed; to resume them again changes nothing."""


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
    path = f"/api/workers/{quote(worker, safe='')}/resume"
    for _ in range(_ATTEMPTS):
        status, answer = command(address, path, access)
        if status != HTTPStatus.GATEWAY_TIMEOUT:
            break
    if status != HTTPStatus.OK:
        why = answer.get("error") if isinstance(answer, dict) else None
        raise RunError(f"{worker}: {why or 'whatever answers there is not a worker'}")
    click.echo(f"{worker}: resumed")
    for text in accepted:
        click.echo(f"accepted for this version: {text}")
    return OK
