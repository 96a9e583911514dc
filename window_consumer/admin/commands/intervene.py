"""``window-consumer skip`` and ``dead-letter``: remove one failed record from the window."""

from __future__ import annotations

import re
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Final

import click

from window_consumer.admin.cli import worker_address
from window_consumer.admin.client import Access, AdminAddress, command, refusal_in, worker_path
from window_consumer.cli.options import json_option, workers_named
from window_consumer.cli.output import FAILED, OK, exits, print_result
from window_consumer.engine.guards.interventions import Intervention
from window_consumer.model.errors import RunError, UsageError

_RECORD: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})/([0-9]{1,10})/([0-9]{1,19})")

_DONE: Final = {Intervention.SKIP: "skipped", Intervention.DEAD_LETTER: "among the dead letters"}


def _command(wanted: Intervention, text: str, unchanged: str) -> click.Command:
    def run(
        *,
        worker: str,
        record: str,
        as_json: bool,
        url: str,
        token: str | None,
        authority: Path | None,
    ) -> int:
        found = _RECORD.fullmatch(record)
        if found is None:
            raise UsageError(
                f"--record: {record!r} is not a record: write TOPIC/PARTITION/OFFSET, as in"
                " orders/0/42"
            )
        topic, partition, offset = found.groups()
        address = AdminAddress.parse(url)
        path = f"{worker_path(worker)}/partitions/{topic}/{partition}/records/{offset}/{wanted}"
        status, answer = command(address, path, Access(token, authority))
        if status != HTTPStatus.OK:
            raise RunError(f"{record}: {refusal_in(answer)}")
        fields = {"worker": worker, "record": record, "verdict": answer["verdict"]}
        print_result(fields, f"{record} is {_DONE[wanted]}", as_json=as_json)
        return OK

    options: tuple[Callable[..., object], ...] = (
        click.option(
            "--worker",
            "-w",
            required=True,
            metavar="W",
            shell_complete=workers_named,
            help="The worker that holds it.",
        ),
        click.option(
            "--record",
            required=True,
            metavar="TOPIC/PARTITION/OFFSET",
            help="Where the record is now; for a copy in a retry topic, its position there.",
        ),
        json_option,
        worker_address,
    )
    run.__doc__ = text
    wrapped: Callable[..., object] = exits({FAILED: unchanged})(run)
    for option in reversed(options):
        wrapped = option(wrapped)
    return click.command(str(wanted))(wrapped)


skip_command = _command(
    Intervention.SKIP,
    "Skip one failed record of a running worker.\n\nIt counts as skipped, its offset is"
    " committed, and no copy of it is kept.",
    "nothing was changed",
)
dead_letter_command = _command(
    Intervention.DEAD_LETTER,
    "Send one failed record of a running worker to its dead-letter topic.\n\nIts copy has the"
    " reason MANUAL.",
    "it is not there, or not yet",
)
