"""Completion in shells: ``window-consumer completion``, and names from the configuration.

Reads the configuration without checking it, and the Kafka cluster never: a shell waits for the
answer, and a broken file has no names to offer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import get_completion_class

from window_consumer.cli.output import OK
from window_consumer.model.errors import UsageError

PROGRAM: Final = "window-consumer"
VARIABLE: Final = "_WINDOW_CONSUMER_COMPLETE"
"""The variable with which the scripts ask the program; click derives it from the program's name."""

_FILES: Final = ("workers.yaml", "workers.yml")


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(ctx: click.Context, *, shell: str) -> int:
    """Print the script that completes commands in a shell.

    Bash, in ~/.bashrc: eval "$(window-consumer completion bash)". Zsh likewise, in ~/.zshrc. Fish:
    window-consumer completion fish > ~/.config/fish/completions/window-consumer.fish. Completes
    commands, options, and the workers and topics of workers.yaml or --config.
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"{shell}: there is no completion for this shell")
    click.echo(kind(ctx.find_root().command, {}, PROGRAM, VARIABLE).source())
    return OK


def workers_named(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the workers of the configuration whose names begin so."""
    return _beginning(_workers(ctx), incomplete)


def topics_named(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the topics of the configuration's workers whose names begin so."""
    found: list[str] = []
    for worker in _workers(ctx).values():
        topics = worker.get("topics") if isinstance(worker, Mapping) else None
        found += [topics] if isinstance(topics, str) else topics or []
    return _beginning(found, incomplete)


def _beginning(names: Iterable[object], incomplete: str) -> list[str]:
    found = dict.fromkeys(name for name in names if isinstance(name, str))
    return [name for name in found if name.startswith(incomplete)]


def _workers(ctx: click.Context) -> Mapping[Any, Any]:
    import yaml  # noqa: PLC0415 - only a completion needs it here

    given = ctx.params.get("config")
    files = [given] if isinstance(given, Path) else map(Path, _FILES)
    for file in files:
        with suppress(OSError, ValueError, yaml.YAMLError):
            read = yaml.safe_load(file.read_text("utf-8"))
            workers = read.get("workers") if isinstance(read, Mapping) else None
            return workers if isinstance(workers, Mapping) else {}
    return {}
