"""What a failed call reports: its class, text, stack and fingerprint.

Errors of one class from one place share a fingerprint. The place is the chain of functions
without line numbers, because those change with each version of the application.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from attrs import frozen


@frozen
class Fault:
    """An exception in words, secrets masked and redacted."""

    error_class: str
    message: str
    stack: str
    """The frames from the handler's on, then those of the exceptions that led to it."""
    fingerprint: str
    """Equal for errors of one class from one place."""

    @property
    def words(self) -> str:
        """Class and message, as far as there is one that may be told."""
        return f"{self.error_class}: {self.message}" if self.message else self.error_class


@frozen(eq=False)
class Failure:
    """A failed call: the exception, which the rules look at, and what to tell about it.

    The exception has no traceback any more: its frames would keep everything alive that they
    mention, a whole slice of records among it.
    """

    error: BaseException
    fault: Fault
    handler: str = ""
    """The name of the handler that was called, empty where the worker has only one."""


_MAX_LINES = 200
_JAVA_FRAME = re.compile(r"\s*at ([^\s(]+)\(")
_JAVA_CAUSE = re.compile(r"\s*(?:Caused by|Suppressed): ([\w.$]+)")
_PYTHON_FRAME = re.compile(r'\s*File "(?:.*[/\\])?([^"/\\]+)", line \d+, in (\S+)')
_GENERATED = re.compile(r"(\$\$Lambda|\$Proxy|Accessor|lambda\$\w+\$)[$\w/]*")
"""Names that the Java machine makes anew in each process."""


def fingerprint(error_class: str, place: str) -> str:
    """Return the fingerprint of an error of a class that was raised at a place: 16 hex digits."""
    return blake2b(f"{error_class}|{place}".encode(), digest_size=8).hexdigest()


def place_in(stack: str) -> str:
    """Return the functions that a printed stack of Java or Python names; "" where it has none."""
    return "|".join(filter(None, map(_function_in, stack.splitlines()[:_MAX_LINES])))


def _function_in(line: str) -> str:
    python = _PYTHON_FRAME.match(line)
    if python is not None:
        return f"{python[1]}:{python[2]}"
    java = _JAVA_FRAME.match(line) or _JAVA_CAUSE.match(line)
    # In front of a slash stand class loader and module, with its version.
    return "" if java is None else _GENERATED.sub(r"\1", java[1]).rpartition("/")[2]
