"""Whether a worker's handlers have ``once``, whose database would recognise replayed records."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from window_consumer.config import WorkerConfig
from window_consumer.config.sections.once import OnceConfig
from window_consumer.plan.definition import AppDefinition


class UsesOnce(Enum):
    """The answer; only the application knows for sure."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


def uses_once(
    worker: WorkerConfig, app: AppDefinition | None, file: Path, overrides: Sequence[str]
) -> UsesOnce:
    """Return whether a handler of the worker has ``once``.

    Without the application, a section ``once`` in the worker's configuration says so.
    """
    if app is None:
        return UsesOnce.YES if worker.once != OnceConfig() else UsesOnce.UNKNOWN
    plan = app.plan(file, only=[worker.name], overrides=overrides)
    found = any(route.handler.once for each in plan.workers for route in each.routes)
    return UsesOnce.YES if found else UsesOnce.NO
