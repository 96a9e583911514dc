"""``window-consumer pause`` and ``resume``: begin and end the pause of a worker."""

from __future__ import annotations

from pathlib import Path

import click

from window_consumer.admin.cli import command_for, worker_address
from window_consumer.admin.client import Access, AdminAddress, ask, command_worker
from window_consumer.cli.options import json_option, workers_named
from window_consumer.cli.output import FAILED, OK, exits, print_result


@click.command("pause")
@click.option(
    "--worker",
    "-w",
    required=True,
    metavar="W",
    shell_complete=workers_named,
    help="The worker to pause.",
)
@click.option("--reason", default="", metavar="TEXT", help="The reason, shown beside the pause.")
@json_option
@worker_address
@exits({FAILED: "the worker does not exist or did not answer"})
def pause_command(
    *, worker: str, reason: str, as_json: bool, url: str, token: str | None, authority: Path | None
) -> int:
    """Pause a worker until somebody resumes it, or its process ends.

    No new call starts; running calls end, copies of failed records are written, and the worker
    stays in its group. With several replicas at the address, all of them pause.
    """
    command_worker(worker, "pause", AdminAddress.parse(url), Access(token, authority), reason)
    text = f"{worker}: paused; `{command_for('resume', worker, url)}` ends it"
    print_result({"worker": worker, "paused": True}, text, as_json=as_json)
    return OK


@click.command("resume")
@click.option(
    "--worker",
    "-w",
    required=True,
    metavar="W",
    shell_complete=workers_named,
    help="The worker that is paused.",
)
@json_option
@worker_address
@exits({FAILED: "the worker does not exist or did not answer"})
def resume_command(
    *, worker: str, as_json: bool, url: str, token: str | None, authority: Path | None
) -> int:
    """Resume a worker that a person paused, or a new failure (on_new_failure).

    This accepts the failure for this version, as long as the process runs. With several replicas at
    the address, all of them resume. Individually paused partitions stay paused.
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
    command_worker(worker, "resume", address, access)
    lines = [f"{worker}: resumed", *(f"accepted for this version: {each}" for each in accepted)]
    fields = {"worker": worker, "paused": False, "accepted": accepted}
    print_result(fields, "\n".join(lines), as_json=as_json)
    return OK
