"""The session of the pipeline's tests serves these, too."""

from __future__ import annotations

from tests.pipeline.conftest import class_archive, spark

__all__ = ["class_archive", "spark"]
