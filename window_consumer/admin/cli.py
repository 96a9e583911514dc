"""The commands that query an admin address: ``top``, ``doctor``, ``resume`` and others."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

DEFAULT_URL: Final = "http://127.0.0.1:8090"
"""The admin address of the examples in the documentation."""

token_option = click.option(
    "--token",
    envvar="WINDOW_CONSUMER_TOKEN",
    metavar="TOKEN",
    default=None,
    help="The token of the admin address. [env: WINDOW_CONSUMER_TOKEN]",
)
authority_option = click.option(
    "--ca",
    "authority",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    default=None,
    metavar="FILE",
    help="Certificates (PEM) to trust with https://. [default: the machine's]",
)


def command_for(words: str, worker: str, url: str) -> str:
    """Return a command about a worker at an address, for people to paste."""
    where = "" if url == DEFAULT_URL else f" --url {shlex.quote(url)}"
    return f"window-consumer {words} --worker {shlex.quote(worker)}{where}"


def worker_address(command: CommandT) -> CommandT:
    """Give a command the admin address of one worker, as ``url``, ``token`` and ``authority``."""
    url = click.option(
        "--url",
        default=DEFAULT_URL,
        show_default=True,
        metavar="ADMIN",
        help="The worker's admin address (admin.listen).",
    )
    return url(token_option(authority_option(command)))
