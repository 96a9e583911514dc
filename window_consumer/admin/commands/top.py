"""``window-consumer top``: the live window of remote workers, in the terminal."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.live import Live

from window_consumer.admin.cli import DEFAULT_URL, authority_option, token_option
from window_consumer.admin.client import Access, AdminAddress, AskError
from window_consumer.admin.commands.live_view import view
from window_consumer.admin.commands.watch import AddressWatches
from window_consumer.cli.options import DURATION
from window_consumer.cli.output import FAILED, OK, exits
from window_consumer.model.errors import UsageError

_SHORTEST_S = 0.1


@click.command("top")
@click.argument("urls", nargs=-1, metavar="[URL]...")
@token_option
@authority_option
@click.option(
    "--interval",
    "interval_s",
    type=DURATION,
    default=1.0,
    metavar="DURATION",
    help="How often to refresh. [default: 1s]",
)
@click.option("--once", is_flag=True, help="Print the state once and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print each refresh as one line of JSON.")
@exits({FAILED: "no address answered, or one did not with --once"})
def top_command(
    *,
    urls: tuple[str, ...],
    token: str | None,
    authority: Path | None,
    interval_s: float,
    once: bool,
    as_json: bool,
) -> int:
    """Show the live windows of workers, at their addresses (admin.listen).

    One or several URLs, such as http://127.0.0.1:8090, which is the default. Ctrl-C ends it.
    """
    if interval_s < _SHORTEST_S:
        raise UsageError(
            f"--interval: at least {_SHORTEST_S:g}s; each refresh costs the worker time"
        )
    addresses = [AdminAddress.parse(url) for url in dict.fromkeys(urls or (DEFAULT_URL,))]
    for number in (signal.SIGTERM, signal.SIGINT):
        # Set explicitly, because a shell starts background processes with SIGINT ignored.
        signal.signal(number, _interrupt)
    try:
        watches = AddressWatches(addresses, Access(token, authority), interval_s)
        if len(watches.gone) == len(addresses):
            raise AskError("\n".join(watches.gone.values()))
        _show(watches, interval_s, once=once, as_json=as_json)
    except KeyboardInterrupt:
        return OK
    watches.stop()
    return FAILED if watches.gone else OK


def _interrupt(*_: Any) -> None:
    """End as with Ctrl-C, which restores the terminal."""
    raise KeyboardInterrupt


def _show(watches: AddressWatches, interval_s: float, *, once: bool, as_json: bool) -> None:
    console = Console(highlight=False)
    if as_json:
        _repeat(lambda: click.echo(json.dumps(_as_json(watches))), interval_s, once=once)
    elif once or not console.is_terminal or console.is_dumb_terminal:
        _repeat(lambda: console.print(view(watches.scene(), console.width)), interval_s, once=once)
    else:
        with Live(console=console, auto_refresh=False, screen=True) as live:

            def draw() -> None:
                scene = watches.scene()
                live.update(view(scene, console.width, console.height), refresh=True)

            _repeat(draw, interval_s, once=False)


def _repeat(show: Callable[[], object], interval_s: float, *, once: bool) -> None:
    while True:
        show()
        if once:
            return
        time.sleep(interval_s)


def _as_json(watches: AddressWatches) -> dict[str, Any]:
    return {
        "time": round(time.time() * 1000),
        "processes": [
            {
                "url": str(each.address),
                "gone": each.why_gone or None,
                "answer": None if each.latest is None else each.latest.answer,
            }
            for each in watches.each
        ],
    }
