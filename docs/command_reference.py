"""Exit codes and commands in commands.md: ``python -m docs.command_reference`` regenerates them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from window_consumer.cli.main import cli
from window_consumer.cli.output import USUAL, own_exit_codes

PAGE = Path(__file__).parent / "commands.md"


def reference() -> str:
    """Return each command with its arguments and options."""
    return "".join(f"\n{_section(path, command)}" for path, command in commands())


def rendered(page: str) -> str:
    """Return the page with the list as it should be."""
    page = _replaced(page, "exit codes", exit_codes())
    return _replaced(page, "commands", f"{reference()}\n")


def _replaced(page: str, name: str, text: str) -> str:
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}{text}{end}{after}"


def exit_codes() -> str:
    """Return the table of exit codes: the usual ones, and those that commands document."""
    own: dict[tuple[int, str], list[str]] = {}
    for path, command in commands():
        for code, meaning in own_exit_codes(command.callback).items():
            own.setdefault((code, meaning), []).append(f"`{path}`")
    rows = [(code, "all other commands", meaning) for code, meaning in USUAL.items()]
    rows += [(code, ", ".join(names), meaning) for (code, meaning), names in own.items()]
    rows.sort(key=lambda row: (row[0], row[1] == "all other commands"))
    lines = [f"| {code} | {meaning} | {names} |\n" for code, names, meaning in rows]
    return "".join(["\n| exit code | | of |\n|---|---|---|\n", *lines, "\n"])


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield all commands, those of groups included, by their whole names."""
    yield from _inside("", cli, click.Context(cli))


def _inside(
    path: str, group: click.Group, context: click.Context
) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        whole = f"{path} {name}".strip()
        if isinstance(command, click.Group):
            yield from _inside(whole, command, click.Context(command, parent=context))
        else:
            yield whole, command


def _section(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    text = inspect.cleandoc(command.help or "").replace("\b\n", "").partition("\f")[0].strip()
    rows = [_row(each) for each in command.params if isinstance(each, click.Option)]
    table = "".join(["\n| option | |\n|---|---|\n", *rows]) if any(rows) else ""
    return f"### {path}\n\n```text\nwindow-consumer {usage}\n```\n\n{_as_markdown(text)}\n{table}"


def _row(option: click.Option) -> str:
    if option.hidden:
        return ""
    found = option.get_help_record(click.Context(click.Command("")))
    if found is None:
        return ""
    names, said = (re.sub(r"\s+", " ", each).replace("|", "\\|") for each in found)
    return f"| `{names}` | {_as_markdown(said)} |\n"


def _as_markdown(text: str) -> str:
    """Return a help text as Markdown, with text that looks like HTML or markup as code."""
    return re.sub(r"(?<!`)(<[\w ]+>|\*\S*|\w*__\w*)", r"`\1`", text)


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")
