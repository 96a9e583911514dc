"""``window-consumer demo``: an embedded broker, a shop that misbehaves, an independent checker."""

from __future__ import annotations

from window_consumer.demo.cli import demo_command

__all__ = ["demo_command"]
