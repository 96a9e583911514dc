"""What tidies up tables, imported when it is wanted."""

from __future__ import annotations

from types import ModuleType

from window_consumer.model.errors import UsageError


def maintenance() -> ModuleType:
    """Return ``pipeline.maintenance``; raises UsageError where a package is missing."""
    try:
        from window_consumer.pipeline import maintenance as found  # noqa: PLC0415 - optional
    except ModuleNotFoundError as error:
        raise UsageError(
            f"there is no {error.name}: pip install 'window-consumer[spark]'"
        ) from error
    return found
