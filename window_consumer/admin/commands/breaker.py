"""``window-consumer breaker``: overrule a worker's circuit breaker."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import Final

import click

from window_consumer.admin.cli import worker_address
from window_consumer.admin.client import Access, AdminAddress, ask, command, refusal_in, worker_path
from window_consumer.cli.options import json_option, workers_named
from window_consumer.cli.output import FAILED, OK, exits, print_result
from window_consumer.engine.guards.breaker_state import BreakerAnswer
from window_consumer.model.errors import RunError, UsageError

_RELEASED: Final = "failed records leave when they fail once more"
_HELD: Final = "nothing leaves until a call returns"


@click.command("breaker")
@click.option(
    "--worker",
    "-w",
    required=True,
    metavar="W",
    shell_complete=workers_named,
    help="The worker with the breaker.",
)
@click.option(
    "--release",
    is_flag=True,
    help="The records are bad: failed records leave when they fail once more.",
)
@click.option("--hold", is_flag=True, help="It is an outage: nothing leaves until a call returns.")
@json_option
@worker_address
@exits({FAILED: "nothing was changed"})
def breaker_command(  # noqa: PLR0913 - an argument for each option
    *,
    worker: str,
    release: bool,
    hold: bool,
    as_json: bool,
    url: str,
    token: str | None,
    authority: Path | None,
) -> int:
    """Tell a worker's circuit breaker whether records are bad, or a dependency is down.

    The breaker cannot distinguish bad records that fill all windows from an outage.
    """
    if release == hold:
        raise UsageError("give either --release or --hold")
    what = "release" if release else "hold"
    address, access = AdminAddress.parse(url), Access(token, authority)
    status, answer = command(address, f"{worker_path(worker)}/breaker/{what}", access)
    if status != HTTPStatus.OK:
        why = refusal_in(answer)
        if isinstance(answer, dict) and answer.get("result") == BreakerAnswer.NO_SUCH_WORKER:
            names = dict.fromkeys(each.name for each in ask(address, access).workers)
            why += f", only {', '.join(names) or 'none so far'}"
        raise RunError(f"{worker}: {why}")
    text = f"{worker}: {_RELEASED if release else _HELD}"
    print_result({"worker": worker, "breaker": what}, text, as_json=as_json)
    return OK
