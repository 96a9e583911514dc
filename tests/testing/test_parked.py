"""Keys that are parked, in the test kit."""

from __future__ import annotations

from pathlib import Path

import yaml

from window_consumer import App, Record
from window_consumer.testing import DONE, MOVED, TestApp

RETRY = {"on_failure": "park", "attempts": 1, "levels": ["10s"]}


def kit(folder: Path, done: list[bytes]) -> TestApp:
    app = App("shop")

    @app.handler("orders", group="g", ordering="key", retry=RETRY)
    def charge(order: Record) -> None:
        if order.value == b"first" and order.attempt == 1:
            raise ConnectionError("closed")
        done.append(order.value or b"")

    file = folder / "workers.yaml"
    file.write_text(yaml.safe_dump({"workers": {"charge": {}}}))
    return TestApp(app, file)


def test_the_keys_in_the_ladder_can_be_seen(tmp_path: Path) -> None:
    done: list[bytes] = []
    with kit(tmp_path, done) as app:
        first = app.send("orders", b"first", key="k")
        assert first.outcome is MOVED
        second = app.send("orders", b"second", key="k")
        assert app.send("orders", b"other", key="o").outcome is DONE
        assert app.parked_keys == {b"k": 1}
        app.advance("11s")
        assert (first.outcome, second.outcome) == (DONE, DONE)
        assert app.parked_keys == {}
    assert done == [b"other", b"first", b"second"]


def test_a_rebalance_keeps_what_is_parked(tmp_path: Path) -> None:
    done: list[bytes] = []
    with kit(tmp_path, done) as app:
        for value in (b"first", b"second", b"third"):
            app.send("orders", value, key="k")
        app.rebalance()
        assert app.parked_keys == {b"k": 2}
        app.advance("11s")
    assert done == [b"first", b"second", b"third"]
