"""The documented place of ``load_app``, which returns the App that ``module:app`` names."""

from __future__ import annotations

from window_consumer.plan.loading import load_app

__all__ = ["load_app"]
