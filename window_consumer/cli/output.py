"""What commands print at the end: exit codes, errors as one readable block, escaped text."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

import click

from window_consumer.model.errors import UsageError, WindowConsumerError

OK = 0
FAILED = 1
WRONG_USAGE = 2
FOUND = 3
LOST = 3
INTERRUPTED = 130


def guarded(command: Callable[[], int]) -> int:
    """Run a command and return the exit code; user mistakes never show a traceback."""
    try:
        return command()
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except BaseException as error:
        return explain(error)


def explain(error: BaseException, mask: Callable[[str], str] = str) -> int:
    """Print what went wrong, without secrets, and return the exit code for it."""
    code = FAILED
    if isinstance(error, click.ClickException):
        error.show()
        code = WRONG_USAGE
    elif isinstance(error, click.Abort | KeyboardInterrupt):
        code = INTERRUPTED
    elif isinstance(error, WindowConsumerError):
        print_error(mask(str(error)))
        code = WRONG_USAGE if isinstance(error, UsageError) else FAILED
    elif isinstance(error, BrokenPipeError):
        # The reader of our output has closed it; Python would complain again at its own exit.
        sys.stderr.close()
    elif isinstance(error, SystemExit):
        raise error
    else:
        stack = "".join(traceback.format_exception(error))
        print_error(mask(f"this is a bug, please report it:\n{stack}"))
    return code


def print_error(text: str) -> None:
    """Print an error block."""
    click.echo(f"error: {text.rstrip()}", err=True)


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
