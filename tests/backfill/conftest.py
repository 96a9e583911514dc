"""The session of the pipeline's tests serves these, too."""

from __future__ import annotations

from tests.pipeline.conftest import connectors, spark

__all__ = ["connectors", "spark"]
