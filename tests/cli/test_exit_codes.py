"""Exit codes: what a command may end with is declared, and its help says it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping

import click
from click.testing import CliRunner

from docs.command_reference import commands as all_commands
from window_consumer.cli import output
from window_consumer.cli.output import FOUND, OK, USUAL, exits, own_exit_codes

ALL = list(all_commands())

CODES = {name: code for name, code in vars(output).items() if name.isupper() and type(code) is int}


FOUND_SAYS = "something was found"


@click.command("look")
@exits({FOUND: FOUND_SAYS})
def look() -> int:
    """Look around."""
    return int(click.get_current_context().obj)


def test_a_code_that_is_not_declared_is_a_bug() -> None:
    runner = CliRunner()
    assert runner.invoke(look, obj=FOUND, standalone_mode=False).return_value == FOUND
    assert runner.invoke(look, obj=OK, standalone_mode=False).return_value == OK
    assert isinstance(runner.invoke(look, obj=7).exception, AssertionError)


def test_the_help_of_a_command_says_its_own_codes() -> None:
    assert f"{FOUND}: {FOUND_SAYS}" in CliRunner().invoke(look, ["--help"]).output
    for _, command in ALL:
        for code, meaning in own(command).items():
            assert f"{code}: {meaning}" in (command.help or "")


def test_a_command_declares_what_is_not_usual() -> None:
    """Its module names no constant of another code, or the command declares that code."""
    assert [name for name, command in ALL if unusual(command) - {*own(command)}] == []


def own(command: click.Command) -> Mapping[int, str]:
    return own_exit_codes(command.callback)


def unusual(command: click.Command) -> set[int]:
    """Return the codes that the command's module names, without those of all commands."""
    assert command.callback is not None
    module = inspect.getmodule(inspect.unwrap(command.callback))
    assert module is not None
    names = {
        node.id for node in ast.walk(ast.parse(inspect.getsource(module))) if type(node) is ast.Name
    }
    return {CODES[name] for name in names & CODES.keys()} - {*USUAL}
