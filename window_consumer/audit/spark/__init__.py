"""The audit on Spark: from counts to a balance and its findings.

Its public names are imported on first use: configurations are read where Spark is not installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from window_consumer.audit.spark.counts import effective
    from window_consumer.audit.spark.findings import Rules, bucket_findings

__all__ = ["Rules", "bucket_findings", "effective"]

_MODULE_OF = {
    "Rules": "window_consumer.audit.spark.findings",
    "bucket_findings": "window_consumer.audit.spark.findings",
    "effective": "window_consumer.audit.spark.counts",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
