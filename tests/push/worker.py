"""A worker of the test kit that posts to a URL."""

from __future__ import annotations

from typing import Any

from window_consumer import App
from window_consumer.testing import TestApp


def pushing(url: str, http: dict[str, Any] | None = None, **worker: Any) -> TestApp:
    """Return an application without handlers, whose worker posts the records of `orders`."""
    section = {"url": url, **(http or {})}
    keys = {"topics": ["orders"], "group": "shop", "http": section, **worker}
    topics = {"orders": 4, "events": 1}
    return TestApp(App("push"), config={"workers": {"orders": keys}}, topics=topics)
