"""``window-consumer completion``: the script with which a shell asks for names."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

from window_consumer.cli.output import OK
from window_consumer.model.errors import UsageError

PROGRAM: Final = "window-consumer"
VARIABLE: Final = "_WINDOW_CONSUMER_COMPLETE"
"""The environment variable of the scripts; click derives it from the program's name."""


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
        raise UsageError(f"{shell}: no completion for this shell")
    click.echo(kind(ctx.find_root().command, {}, PROGRAM, VARIABLE).source())
    return OK
