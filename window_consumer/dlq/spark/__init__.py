"""Dead letters on Spark: their table, and the report's queries.

Its public names are imported on first use: configurations are read where Spark is not installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from window_consumer.dlq.spark.config import Reading
    from window_consumer.dlq.spark.report import causes, facts, with_cause
    from window_consumer.dlq.spark.table import judge, letters

__all__ = ["Reading", "causes", "facts", "judge", "letters", "with_cause"]

_MODULE_OF = {
    "Reading": "window_consumer.dlq.spark.config",
    "causes": "window_consumer.dlq.spark.report",
    "facts": "window_consumer.dlq.spark.report",
    "judge": "window_consumer.dlq.spark.table",
    "letters": "window_consumer.dlq.spark.table",
    "with_cause": "window_consumer.dlq.spark.report",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
