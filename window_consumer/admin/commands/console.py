"""``window-consumer console``: the pages of a configuration without its workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import click
from attrs import evolve

from window_consumer.admin.config import AdminConfig, conflicts
from window_consumer.admin.feature import server_module
from window_consumer.cli import options
from window_consumer.cli.logs import set_up
from window_consumer.cli.output import OK, explain
from window_consumer.cli.signals import Signals
from window_consumer.config import Mask
from window_consumer.config.sections.listening import address_kind
from window_consumer.model.errors import UsageError, WindowConsumerError
from window_consumer.plan.feature_list import FeatureList
from window_consumer.plan.loading import load_app, load_without_handlers

_LISTEN: Final = "127.0.0.1:8090"


def _address(text: str) -> str:
    address: str = address_kind().read(text)
    return address


@click.command("console")
@options.config
@options.optional_application
@options.overrides
@click.option(
    "--listen",
    type=options.TextParam("address", _address),
    default=None,
    metavar="HOST:PORT",
    help=f"Where to listen. [default: admin.listen, or {_LISTEN}]",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How log lines are written.",
)
@options.features
def console_command(
    *,
    config: Path,
    application: str | None,
    overrides: Sequence[str],
    listen: str | None,
    log_format: Literal["text", "json"],
    features: FeatureList,
) -> int:
    """Serve the pages of the workers' groups, dead letters, trace and audit until a signal.

    No worker runs: everything comes from Kafka and from the pipeline's tables (admin.pipeline).
    Tokens and TLS come from the section admin. MODULE:APP is needed only if decorators give keys
    that the file lacks.
    """
    formatter = set_up(log_format, "info")
    app = None if application is None else load_app(application)
    loaded = load_without_handlers(config, app, overrides, features)
    mask = formatter.mask = Mask(loaded.secrets)
    admin = loaded.config.section(AdminConfig)
    admin = evolve(admin, listen=listen or admin.listen or _LISTEN)
    signals = Signals.install()
    try:
        for problem in conflicts(admin, ()):
            raise UsageError(f"--listen: {problem.message}")
        pages = features.pages(loaded, None if app is None else app.token_function)
        with server_module().serving(None, admin, loaded.file.parent, pages):
            signals.stop.wait()
    except WindowConsumerError as error:
        return explain(error, mask)
    return OK
