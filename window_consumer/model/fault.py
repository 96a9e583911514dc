"""The report of a failed call: class, text, stack and fingerprint.

Errors of one class from one place share a fingerprint. The place is the chain of functions without
line numbers, because those change with each version of the application.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from attrs import frozen


@frozen
class Fault:
    """An exception as text, secrets masked and redacted."""

    error_class: str
    message: str
    stack: str
    """The frames from the handler's on, then those of the exceptions that led to it."""
    fingerprint: str
    """Equal for errors of one class from one place."""

    @property
    def words(self) -> str:
        """Class and message; only the class if there is no message or it may not be shown."""
        return f"{self.error_class}: {self.message}" if self.message else self.error_class


@frozen(eq=False)
class Failure:
    """A failed call: the exception, for the rules, and its report.

    The exception no longer has a traceback: the frames would keep alive everything they refer to,
    including a whole slice of records.
    """

    error: BaseException
    fault: Fault
    handler: str = ""
    """The name of the handler that was called; empty if the worker has only one."""

    @classmethod
    def uncalled(cls, error: BaseException) -> Failure:
        """Return the failure of a record for which no handler is called; it has no stack."""
        kind = type(error)
        name = f"{kind.__module__}.{kind.__qualname__}"
        return cls(error, Fault(name, str(error), "", fingerprint(name, "")))


_MAX_LINES = 200
_JAVA_FRAME = re.compile(r"\s*at ([^\s(]+)\(")
_JAVA_CAUSE = re.compile(r"\s*(?:Caused by|Suppressed): ([\w.$]+)")
_PYTHON_FRAME = re.compile(r'\s*File "(?:.*[/\\])?([^"/\\]+)", line \d+, in (\S+)')
_GENERATED = re.compile(r"(\$\$Lambda|\$Proxy|Accessor|lambda\$\w+\$)[$\w/]*")
"""Names that the JVM generates in each process."""


def fingerprint(error_class: str, place: str) -> str:
    """Return the fingerprint for an error class and a place: 16 hex digits."""
    return blake2b(f"{error_class}|{place}".encode(), digest_size=8).hexdigest()


def place_in(stack: str) -> str:
    """Return the functions in a printed Java or Python stack; "" if there are none."""
    return "|".join(filter(None, map(_function_in, stack.splitlines()[:_MAX_LINES])))


def _function_in(line: str) -> str:
    python = _PYTHON_FRAME.match(line)
    if python is not None:
        return f"{python[1]}:{python[2]}"
    java = _JAVA_FRAME.match(line) or _JAVA_CAUSE.match(line)
    # Class loader and module, with its version, precede a slash.
    return "" if java is None else _GENERATED.sub(r"\1", java[1]).rpartition("/")[2]
