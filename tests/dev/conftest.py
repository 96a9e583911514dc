"""An application that ``dev`` runs, and the browser that shows its page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from attrs import frozen

from tests.admin.admin import Asking
from tests.admin.conftest import browser
from tests.commands import Command, Commands
from tests.waiting import wait_until
from window_consumer.kafka.embedded import EmbeddedBroker

__all__ = ["browser"]

SHOP = """
from window_consumer import App

app = App("shop")


@app.handler("orders", group="shop", retry={"attempts": 1})
def charge(order):
    print(f"VERSION {order.text()} {order.offset}\\n", end="", flush=True)  # in one piece
    if order.text() == "broken":
        raise ValueError("broken")
"""


def shop(version: str) -> str:
    """Return the application; its handler prints the version with each record."""
    return SHOP.replace("VERSION", version)


ONE = shop("one")


@frozen
class Dev:
    """``dev`` in a directory with an application, while it runs."""

    commands: Commands
    command: Command

    def change(self, source: str) -> None:
        self.commands.application(source)

    @property
    def port(self) -> int:
        """The page's port, once ``dev`` has reported it."""
        self.command.wait_for("dev: http://")
        found = re.search(r"dev: http://127\.0\.0\.1:(\d+)/", self.command.said)
        assert found is not None
        return int(found[1])

    def ask(self, path: str, **given: Any) -> Any:
        """Return the answer's status and JSON; None while nothing listens.

        None, too, if the application ends while it answers.
        """
        try:
            answer = Asking(self.port)(path, **given)
            content = answer.json
        except (OSError, json.JSONDecodeError):
            return None
        return answer.status, content

    def wait_for_status(self, status: int) -> None:
        """Wait until the page's API answers with a status, 503 while the application is down."""
        wait_until(lambda: (self.ask("/api/frame?since=0") or [0])[0] == status)


StartDev = Callable[..., Dev]


@pytest.fixture
def start_dev(commands: Commands, embedded: EmbeddedBroker) -> StartDev:
    """``start_dev(*options)`` runs the shop against the broker of the test."""

    def start(*options: str, source: str = ONE, env: dict[str, str] | None = None) -> Dev:
        commands.application(source)
        commands.configure({"workers": {"charge": {}}})
        arguments = ("shop:app", "--bootstrap", embedded.bootstrap, *options)
        return Dev(commands, commands.start("dev", *arguments, env=env))

    return start
