"""Every command names the application in the same two ways: MODULE:APP, and --app MODULE:APP."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from tests.cli.conftest import Run
from window_consumer.cli.main import cli

CONTEXT = click.Context(cli)


def commands_of(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(CONTEXT):
        command = group.get_command(CONTEXT, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands_of(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


WITH_APPLICATION = {
    name: command
    for name, command in commands_of(cli, ())
    if {"application", "app_alias"} & {each.name for each in command.params}
}


def test_all_commands_that_may_need_an_application_are_known() -> None:
    assert set(WITH_APPLICATION) >= {
        *("run", "check", "simulate", "backfill", "doctor", "topics plan"),
        *("dlq list", "dlq show", "dlq debug", "dlq export", "dlq purge", "dlq redrive"),
    }


@pytest.mark.parametrize("name", sorted(WITH_APPLICATION))
def test_a_command_takes_both_forms(name: str) -> None:
    params = {each.name: each for each in WITH_APPLICATION[name].params}
    assert isinstance(params["application"], click.Argument)
    assert params["app_alias"].opts == ["--app"]


@pytest.mark.parametrize("named", [("shop:app",), ("--app", "shop:app")])
def test_check_takes_both_forms(window_consumer: Run, named: tuple[str, ...]) -> None:
    assert window_consumer("check", *named).code == 0


def test_two_applications_are_refused_and_so_is_none(window_consumer: Run) -> None:
    assert window_consumer("check", "shop:app", "--app", "shop:app").code == 0
    assert window_consumer("check", "shop:app", "--app", "other:app").code == 2
    ended = window_consumer("check")
    assert ended.code == 2
    assert "MODULE:APP" in ended.err


def test_every_option_for_a_worker_has_the_same_short_form() -> None:
    options = {
        name: each.opts
        for name, command in commands_of(cli, ())
        for each in command.params
        if "--worker" in each.opts
    }
    assert {"dlq list", "dlq redrive", "resume", "replay"} <= set(options)
    assert all("-w" in each for each in options.values()), options
