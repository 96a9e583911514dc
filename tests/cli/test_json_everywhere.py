"""``--json``: each command that prints a result can print it as JSON, errors included."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import pytest

from tests.commands import Commands
from window_consumer.cli.main import cli
from window_consumer.model.errors import MissingTopicError, UsageError, WindowConsumerError

WITHOUT = {
    "run": "runs until it is stopped; its log has --log-format json",
    "broker": "the same",
    "console": "the same",
    "dev": "the same",
    "delay run": "the same",
    "outbox run": "the same",
    "pipeline run": "the same",
    "dlq debug": "a conversation",
    "dlq export": "writes files, or JSON lines",
    "schema": "prints JSON in any case",
    "metrics": "prints a page",
    "completion": "prints a script",
    "topics plan": "prints what another program reads, see --format",
    "outbox ddl": "prints SQL",
    "once ddl": "prints SQL",
}
"""The commands without the option, with the reason."""


def leaves(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group, obj=None)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, *path, name)
        else:
            yield " ".join((*path, name)), command


def test_each_command_has_it_or_a_reason() -> None:
    missing = [
        name
        for name, command in leaves(cli)
        if not any("--json" in each.opts for each in command.params)
    ]
    assert sorted(missing) == sorted(WITHOUT)


def test_where_it_is_it_is_a_flag_of_one_name() -> None:
    flags = [
        (name, each.name, getattr(each, "is_flag", False))
        for name, command in leaves(cli)
        for each in command.params
        if "--json" in each.opts
    ]
    assert [each for each in flags if each[1:] != ("as_json", True)] == []


@pytest.mark.parametrize(
    ("arguments", "exit_code", "code"),
    [
        (("top", "--once", "--interval", "1ms"), 2, UsageError.code),
        (("check", "-c", "nowhere.yaml"), 2, "WC102"),
        (("pause", "-w", "charge", "--url", "http://127.0.0.1:1"), 1, "WC118"),
        (("status", "--nonsense"), 2, UsageError.code),
    ],
)
def test_an_error_is_an_object_on_stdout_and_a_text_on_stderr(
    arguments: tuple[str, ...], exit_code: int, code: str, commands: Commands
) -> None:
    ended = commands.run(*arguments, "--json")
    assert (ended.code, ended.json.keys()) == (exit_code, {"error", "code", "help"})
    assert ended.json["code"] == code
    assert ended.json["error"].splitlines()[0] in ended.err
    plain = commands.run(*arguments)
    assert (plain.code, plain.out, plain.err) == (exit_code, "", ended.err)


def test_an_error_is_printed_with_its_code_and_where_it_is_explained(commands: Commands) -> None:
    ended = commands.run("status", "--url", "http://127.0.0.1:1")
    assert ended.err.rstrip().endswith("errors.md#wc118]")
    assert "[WC118: " in ended.err


@pytest.mark.parametrize("arguments", [("nonsense",), ("status", "--nonsense"), ("completion",)])
def test_wrong_usage_is_printed_so_too_and_names_the_help(
    arguments: tuple[str, ...], commands: Commands
) -> None:
    ended = commands.run(*arguments)
    usage, *_, last = ended.err.rstrip().splitlines()
    assert (ended.code, usage.split()[0]) == (2, "Usage:")
    assert f"[{UsageError.code}: " in last
    assert "--help" in ended.err


def test_a_class_without_a_code_of_its_own_has_its_parents() -> None:
    class OfAFeatureError(MissingTopicError):
        """An error of a feature."""

    assert OfAFeatureError("x").code == MissingTopicError.code != WindowConsumerError.code


def test_init_prints_what_it_wrote(commands: Commands) -> None:
    ended = commands.run("init", "shop", "--json")
    assert ended.code == 0
    assert "shop/workers.yaml" in json.loads(ended.out)["written"]


CHATTY = """
from window_consumer import App

print("imported")
app = App("shop")


@app.handler("orders", group="shop")
def charge(order):
    print("called")
"""


@pytest.mark.parametrize(
    ("arguments", "prints"),
    [
        (("check", "shop:app"), "imported"),
        (("simulate", "shop:app", "--seeds", "2", "--call-handlers"), "called"),
    ],
)
def test_what_the_application_prints_goes_to_stderr(
    arguments: tuple[str, ...], prints: str, commands: Commands
) -> None:
    commands.application(CHATTY)
    commands.configure("kafka: {bootstrap.servers: nowhere}\nworkers: {charge: {}}\n")
    ended = commands.run(*arguments, "--json")
    assert ended.code == 0, ended.said
    assert "charge" in ended.json["workers"]
    assert prints in ended.err
