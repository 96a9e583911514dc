"""``window-consumer dev``: its options, and how they become those of ``run``."""

from __future__ import annotations

import os
import socket
import sys
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from window_consumer.cli import options
from window_consumer.cli.output import OK
from window_consumer.cli.signals import Signals
from window_consumer.dev.file_watch import changes
from window_consumer.dev.process import DevProcess
from window_consumer.dev.session import DevSession
from window_consumer.dev.waiting_page import HOST
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.errors import UsageError

_NEEDED: Final = ("starlette", "uvicorn", "watchfiles")


@click.command("dev")
@options.optional_application
@options.config
@options.only
@options.overrides
@click.option(
    "--bootstrap", metavar="ADDRESS", help="Use the Kafka there instead of an embedded broker."
)
@click.option(
    "--cluster", is_flag=True, help="Use the Kafka of the configuration instead, like run."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="The page's port on 127.0.0.1. [default: any free one]",
)
@click.option("--no-open", is_flag=True, help="Do not open the page in a browser.")
@click.option(
    "--watch",
    "watched",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Also reload for this file, or for files in this directory; may be repeated.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error", "critical"], case_sensitive=False),
    default="info",
    show_default=True,
)
def dev_command(**given: Any) -> int:
    """Run an application while you write it: with a broker, and reloading after each change.

    It runs all workers in a child process against an embedded broker, creates missing topics, and
    opens the live window, which has a form to send a record. When the configuration changes, or
    code, a template or a schema below the current directory, the workers drain and restart; broker,
    records and offsets stay. After a mistake it waits for the next change. Ctrl-C ends it.
    """
    if given["cluster"] and given["bootstrap"]:
        raise UsageError("choose --cluster or --bootstrap")
    _refuse_missing_packages()
    port = _port_to_use(given["port"])
    changed = changes([Path.cwd(), *given["watched"]], given["config"])
    signals = Signals.install()
    with _kafka(given) as kafka:
        process = DevProcess([*_run_arguments(given, port, kafka)], os.environ)
        session = DevSession(
            given["application"] or given["config"].name,
            process,
            port,
            _report,
            _page_opener(os.environ, wanted=not given["no_open"]),
        )
        session.run(changed, signals.stop.is_set)
    return OK


def _report(text: str) -> None:
    """Print a line, bold where the terminal and the environment allow it."""
    Console(stderr=True).print(Text(f"dev: {text}", "bold"), soft_wrap=True)


def _refuse_missing_packages() -> None:
    missing = [name for name in _NEEDED if not _is_there(name)]
    if missing:
        raise UsageError(
            f"dev needs the extra reload, but cannot import {' and '.join(missing)}:"
            " pip install 'window-consumer[reload]'"
        )


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # sys.modules has None for it
        return False


def _port_to_use(port: int) -> int:
    """Return the page's port, which stays the same across restarts of the application."""
    try:
        with socket.create_server((HOST, port)) as listening:
            number: int = listening.getsockname()[1]
    except OSError as error:
        raise UsageError(f"--port {port}: {error.strerror}; choose another one") from error
    return number


@contextmanager
def _kafka(given: Mapping[str, Any]) -> Iterator[Mapping[str, object]]:
    """Yield the Kafka properties to override; with the embedded broker, it lives in the context."""
    if given["cluster"]:
        yield {}
        return
    if given["bootstrap"] is not None:
        yield {"bootstrap.servers": given["bootstrap"]}
        return
    with EmbeddedBroker() as broker:
        _report(f"embedded broker at {broker.bootstrap}")
        yield {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "plaintext",
            "consumer.fetch.wait.max.ms": broker.client_settings()["fetch.wait.max.ms"],
        }


def _run_arguments(
    given: Mapping[str, Any], port: int, kafka: Mapping[str, object]
) -> Iterator[str]:
    yield "run"
    if given["application"] is not None:
        yield given["application"]
    yield from ("--config", str(given["config"]), "--log-level", given["log_level"])
    for worker in given["only"]:
        yield from ("--only", worker)
    settings = [
        *(f"kafka.{key}={value}" for key, value in kafka.items()),
        "admin.values=true",
        *given["overrides"],
        f"admin.listen={HOST}:{port}",
    ]
    for setting in settings:
        yield from ("--set", setting)


def _page_opener(environment: Mapping[str, str], *, wanted: bool) -> Callable[[str], object]:
    """Return the function that opens the page; it does nothing without a browser, as in CI."""
    has_display = sys.platform == "darwin" or any(
        environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    if not wanted or environment.get("CI") or not has_display:
        return lambda _url: None
    return webbrowser.open
