"""Former import paths that docs have shown: each still gives the present module.

New code belongs under the new paths. This list contains only paths that docs named.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, MappingProxyType, ModuleType
from typing import Any, Final

MOVED: Final = MappingProxyType(
    {
        "backfill.job": "spark.backfill.job",
        "backfill.planning": "spark.backfill.planning",
        "model.audit_balance": "audit.balance",
        "model.dead_letter_lines": "dlq.files",
        "pipeline.audit": "audit.spark.counts",
        "pipeline.audit_findings": "audit.spark.findings",
        "dlq.spark.reading": "spark.plan",
        "pipeline.dead_letter_reading": "spark.plan",
        "pipeline.dead_letter_report": "dlq.spark.report",
        "pipeline.dead_letters": "dlq.spark.table",
        "pipeline.schemas": "spark.tables",
        "pipeline.trace": "trace.spark.table",
        "telemetry.audit.audit": "audit.process_audit",
        "telemetry.audit.consumer": "audit.consumer",
        "telemetry.otel.sdk": "metrics.otel.sdk",
        "testing.simulator": "simulator.simulator",
    }
)
"""The former path and the present one, both below ``window_consumer``."""

NAMES: Final = MappingProxyType(
    {
        ("spark.tables", "AUDIT_COUNT"): "audit.spark.schema",
        ("spark.tables", "AUDIT_COUNTS"): "audit.spark.schema",
        ("spark.tables", "AUDIT_RECORD"): "audit.spark.schema",
        ("spark.tables", "DEAD_LETTERS"): "dlq.spark.schema",
        ("spark.tables", "TRACE_BATCH"): "trace.spark.schema",
        ("spark.tables", "TRACE_EVENTS"): "trace.spark.schema",
    }
)
"""Names that a present module used to have, and the module that has them now."""

PACKAGES: Final = frozenset(
    {"backfill", "pipeline", "telemetry", "telemetry.audit", "telemetry.otel"}
)
"""Removed packages that contain former paths; empty now."""

_ROOT = "window_consumer."


def moved_name(module: str, name: str) -> Any:
    """Return a module's former attribute, for its ``__getattr__``; raise AttributeError."""
    path = NAMES.get((module, name))
    if path is None:
        raise AttributeError(f"module {_ROOT + module!r} has no attribute {name!r}")
    return getattr(import_module(_ROOT + path), name)


class _Moved(Loader):
    """Loads the present module under its former path, as the same object."""

    def __init__(self, path: str):
        self._path = path
        self._spec: ModuleSpec | None = None

    def get_code(self, name: str) -> CodeType | None:
        """Return the code that ``python -m`` runs."""
        del name
        spec = find_spec(self._path)
        assert spec is not None
        assert isinstance(spec.loader, InspectLoader)
        return spec.loader.get_code(self._path)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        del spec
        module = import_module(self._path)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # import has written the former one there


class _Gone(Loader):
    def create_module(self, spec: ModuleSpec) -> None:
        del spec

    def exec_module(self, module: ModuleType) -> None:
        del module


class _Finder(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        below = name.removeprefix(_ROOT)
        if below in PACKAGES and below != name:
            return ModuleSpec(name, _Gone(), is_package=True)
        if below in MOVED and below != name:
            return ModuleSpec(name, _Moved(_ROOT + MOVED[below]))
        return None


def install() -> None:
    """Make former paths importable; repeated calls have no effect."""
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.append(_Finder())
