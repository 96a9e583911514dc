"""Checks whether handlers have ``once``, whose database would recognise replayed records."""

from __future__ import annotations

from enum import Enum

from window_consumer.config import LoadedConfig, WorkerConfig
from window_consumer.plan.definition import AppDefinition


class UsesOnce(Enum):
    """The answer; only the application knows with certainty."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


def uses_once(loaded: LoadedConfig, worker: WorkerConfig, app: AppDefinition | None) -> UsesOnce:
    """Return whether a handler of the worker has ``once``; connects to no database.

    Without the application, a section ``once`` in the worker's configuration decides.
    """
    if loaded.is_set(("workers", worker.name, "once")):
        return UsesOnce.YES
    if app is None:
        return UsesOnce.UNKNOWN
    handlers = (app.handlers[name] for name in worker.handlers if name in app.handlers)
    return UsesOnce.YES if any(each.once for each in handlers) else UsesOnce.NO
