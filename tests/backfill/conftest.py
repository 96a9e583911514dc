"""The session of the pipeline's tests serves these, too."""

from __future__ import annotations

from tests.pipeline.conftest import spark

__all__ = ["spark"]
