"""The commands that ask an admin address: ``top``, ``doctor``, ``resume`` and others."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

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
