"""Backfills: run a worker's own handler over a bounded range of a topic, on Spark's executors.

Its public names are imported on first use: configurations are read where Spark is not installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from window_consumer.spark.backfill.job import handled
    from window_consumer.spark.backfill.planning import choose, worker_plan

__all__ = ["choose", "handled", "worker_plan"]

_MODULE_OF = {
    "choose": "window_consumer.spark.backfill.planning",
    "handled": "window_consumer.spark.backfill.job",
    "worker_plan": "window_consumer.spark.backfill.planning",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
