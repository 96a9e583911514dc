"""What commands print at the end: exit codes, errors as one readable block, escaped text.

Errors go to stderr. With ``--json`` the error is also an object on stdout, for programs that parse
the output.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from functools import wraps
from importlib.metadata import PackageNotFoundError, metadata
from inspect import cleandoc
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast
from urllib.parse import urljoin

import click

from window_consumer.model.errors import UsageError, WindowConsumerError

CommandT = TypeVar("CommandT", bound=Callable[..., int])

OK = 0
FAILED = 1
WRONG_USAGE = 2
FOUND = 3
LOST = 3
INTERRUPTED = 130

USUAL: Final[Mapping[int, str]] = MappingProxyType(
    {
        OK: "done",
        FAILED: "it failed while running",
        WRONG_USAGE: "wrong usage or configuration, and nothing was started",
        INTERRUPTED: "interrupted",
    }
)
"""What exit codes mean, unless a command says otherwise with ``exits``."""

BUG: Final = "WC199"
"""The code of an unexpected error: a bug."""


_EXIT_CODES: Final = "__exit_codes__"

_PRINTED: Final = f"{__name__}.printed"
"""Set in the context of a command that has printed its object."""


def exits(meanings: Mapping[int, str]) -> Callable[[CommandT], CommandT]:
    """Declare a command's exit codes beyond the usual ones, and add them to its help.

    Goes directly above the function. Any other code is a bug.
    """

    def declared(command: CommandT) -> CommandT:
        @wraps(command)
        def checked(*given: Any, **more: Any) -> int:
            code = command(*given, **more)
            assert code in {*USUAL, *meanings}, f"exit code {code} is not declared"
            return code

        named = "; ".join(f"{code}: {meaning}" for code, meaning in meanings.items())
        checked.__doc__ = f"{cleandoc(command.__doc__ or '')}\n\nExit code {named}."
        setattr(checked, _EXIT_CODES, meanings)
        return cast("CommandT", checked)

    return declared


def own_exit_codes(callback: Callable[..., Any] | None) -> Mapping[int, str]:
    """Return the exit codes declared with ``exits``."""
    found: Mapping[int, str] = getattr(callback, _EXIT_CODES, {})
    return found


def guarded(command: Callable[[], int], *, as_json: bool = False) -> int:
    """Run a command and return the exit code; user mistakes never show a traceback."""
    try:
        return command()
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except BaseException as error:
        return explain(error, as_json=as_json)


def explain(
    error: BaseException, mask: Callable[[str], str] = str, *, as_json: bool = False
) -> int:
    """Print an error, without secrets, and return its exit code.

    ``as_json`` is the value of the option ``--json``; by default that of the current command.
    """
    as_json = as_json or _is_json_asked()
    code = FAILED
    if isinstance(error, click.ClickException):
        _print_wrong_usage(error, as_json=as_json)
        code = WRONG_USAGE
    elif isinstance(error, click.Abort | KeyboardInterrupt):
        code = INTERRUPTED
    elif isinstance(error, WindowConsumerError):
        print_error(mask(str(error)), error.code, as_json=as_json)
        code = WRONG_USAGE if isinstance(error, UsageError) else FAILED
    elif isinstance(error, BrokenPipeError):
        # The reader of our output has closed it; Python would report that again at exit.
        sys.stderr.close()
    elif isinstance(error, SystemExit):
        raise error
    else:
        stack = "".join(traceback.format_exception(error))
        print_error(mask(f"this is a bug, please report it:\n{stack}"), BUG, as_json=as_json)
    return code


def _print_wrong_usage(error: click.ClickException, *, as_json: bool) -> None:
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # since click 8.2
        error.show()
        return
    if isinstance(error, click.UsageError) and error.ctx is not None:
        usage, path = error.ctx.get_usage(), error.ctx.command_path
        click.echo(f"{usage}\nTry '{path} --help' for help.\n", err=True)
    print_error(error.format_message(), UsageError.code, as_json=as_json)


def print_error(text: str, code: str, *, as_json: bool = False) -> None:
    """Print an error block, with its code and a link to the documentation."""
    said, place = text.rstrip(), f"[{code}: {explained_at(code)}]"
    separator = "\n" if "\n" in said else " "
    click.echo(f"error: {said}{separator}{place}", err=True)
    if as_json:
        _print_object(said, code)


def print_result(fields: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Print what a command did: its fields as JSON, or a text for people."""
    if as_json:
        print_json(fields)
    else:
        click.echo(text)


@contextmanager
def application_output() -> Iterator[None]:
    """With ``--json``, send the output of the user's code to stderr: stdout is for the result.

    Use it around importing an application or calling its handlers.
    """
    if _is_json_asked():
        with redirect_stdout(sys.stderr):
            yield
    else:
        yield


def _is_json_asked() -> bool:
    """Return whether the current command has its option ``--json``."""
    context = click.get_current_context(silent=True)
    return context is not None and context.params.get("as_json") is True


def print_json(fields: Mapping[str, Any]) -> None:
    """Print the JSON object of a command; a later error prints none."""
    click.echo(json.dumps(fields, indent=2))
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[_PRINTED] = True


def _print_object(text: str, code: str) -> None:
    """Print an error as the only object, unless the command has already printed one."""
    context = click.get_current_context(silent=True)
    if context is not None and context.meta.get(_PRINTED):
        return
    click.echo(json.dumps({"error": text, "code": code, "help": explained_at(code)}))


def explained_at(code: str) -> str:
    """Return the documentation's URL for an error, if the package metadata has one."""
    try:
        urls = metadata("window-consumer").get_all("Project-URL") or []
    except PackageNotFoundError:
        urls = []
    return f"{errors_page(urls)}#{code.lower()}"


def errors_page(urls: Iterable[str]) -> str:
    """Return the address of errors.md, from the Project-URLs in the package metadata."""
    found = dict(each.split(", ", 1) for each in urls if ", " in each)
    return urljoin(found.get("Documentation", "docs/"), "errors.md")


def duration(seconds: float) -> str:
    """Return a duration as text for people."""
    whole = round(seconds)
    if whole < 1:
        return f"{seconds * 1000:.0f} ms"
    for size, unit, smaller, of_smaller in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {of_smaller}" if rest else "")
    return f"{whole} s"
