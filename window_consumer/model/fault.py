"""What a failed handler call says of itself."""

from __future__ import annotations

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
