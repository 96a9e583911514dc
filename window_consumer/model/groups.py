"""Exception groups: what they stand for."""

from __future__ import annotations


def meant_by(error: BaseException) -> BaseException:
    """Return the exception that a group holds alone, however deep; all else as it is.

    ``asyncio.TaskGroup`` and what resembles it raise groups where one task has failed.
    """
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
