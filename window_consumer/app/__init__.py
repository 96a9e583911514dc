"""The application: what decorators collect, put together with a configuration and a cluster.

Only this package wires the floors together.
"""

from __future__ import annotations

from window_consumer.app.application import App
from window_consumer.app.handlers import HandlerSpec
from window_consumer.app.plan import Plan

__all__ = ["App", "HandlerSpec", "Plan"]
