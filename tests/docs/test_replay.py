"""The example of docs/replay.md, on the shop of README."""

from __future__ import annotations

import subprocess
import sys

from tests.commands import DEADLINE_S, Commands
from tests.docs.pages import ROOT, commands
from tests.docs.test_examples import EXAMPLES, address_in

PAGE = ROOT / "docs/replay.md"


def test_the_example_of_the_page_calls_the_orders_once_more() -> None:
    dry, wet = (each.removeprefix("window-consumer ").split() for each in commands(PAGE)[:2])
    with Commands(EXAMPLES) as shop:
        there = ("--topic", "orders", "--topic", "shop-charge.orders.retry.now")
        broker = shop.start("broker", *there)
        broker.wait_for("127.0.0.1:")
        env = {"KAFKA_BOOTSTRAP": address_in(broker.said)}
        worker = shop.start("run", "shop:app", env=env)
        worker.wait_for("reads 8 partitions")
        subprocess.run(
            [sys.executable, str(EXAMPLES / "send.py")], env=env, check=True, timeout=DEADLINE_S
        )
        worker.wait_for("charged customer-", times=19)
        ended = shop.run(*dry, env=env)
        assert (ended.code, "20 read, 20 " in ended.out) == (0, True), ended.said
        ended = shop.run(*wet, env=env)
        assert (ended.code, "20 read, 20 replayed" in ended.out) == (0, True), ended.said
        worker.wait_for("charged customer-", times=38)
        assert worker.stop().code == 0
        assert broker.stop().code == 0
