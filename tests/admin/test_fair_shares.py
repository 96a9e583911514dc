"""What is shown of classes: in the snapshot, by check, top, doctor and as metrics."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from rich.console import Console

from tests.commands import Commands
from tests.doctor.made_up import evidence
from tests.engine.test_fair_shares import Shop
from tests.golden_texts import Golden
from window_consumer.admin.commands.live_view import view
from window_consumer.admin.commands.screen import TopScene, WorkerScene
from window_consumer.admin.doctor.diagnosis import diagnose
from window_consumer.admin.record_view import RecordView
from window_consumer.config.sections.mask import MaskRule, MaskRules
from window_consumer.engine.shares_snapshot import NONE, REST, SharesSnapshot
from window_consumer.model.redaction import MASKED, Mask

APPLICATION = """
from window_consumer import App, Record

app = App("shop")

@app.handler("orders")
def charge(record: Record) -> None:
    pass
"""


def snapshot(shop: Shop) -> SharesSnapshot:
    found = shop.snapshot().shares
    assert found is not None
    return found


def test_the_twenty_classes_that_have_used_most_and_the_rest() -> None:
    shop = Shop()
    for number in range(30):
        shop.send(f"t{number}", 40 - number)
    shop.run(300, 0.01)
    seen = snapshot(shop)
    assert (seen.classes, len(seen.largest), seen.largest[-1].name) == (30, 21, REST)
    used = [each.used_s for each in seen.largest[:20]]
    assert used == sorted(used, reverse=True)
    assert sum(each.used_s for each in seen.largest) == pytest.approx(3.0, abs=0.05)
    assert sum(each.waits.calls for each in seen.largest) == 304


def test_records_without_a_class_are_shown_as_such() -> None:
    shop = Shop()
    shop.send(None, 3)
    (seen,) = snapshot(shop).largest
    assert (seen.name, seen.waiting) == (NONE, 3)


def test_tenants_with_odd_names_are_told_apart() -> None:
    shop = Shop()
    for records, name in enumerate((None, NONE, REST, "default", ""), start=1):
        shop.send(name, records)
    seen = {each.name: each.waiting for each in snapshot(shop).largest}
    quoted = {f'"{NONE}"': 2, f'"{REST}"': 3, '""': 5}
    assert seen == {NONE: 1, "default": 4, **quoted}


def starving() -> SharesSnapshot:
    shop = Shop(order="strict", weights={"urgent": 10.0}, floor=0.0)
    shop.send("slow", 7)
    shop.send("urgent", 5000)
    shop.run(400, 1.0)
    return snapshot(shop)


def test_a_class_that_gets_no_slot_is_a_cause() -> None:
    seen = starving()
    slow = next(each for each in seen.largest if each.name == "slow")
    assert slow.starved_s > 90
    found = diagnose([evidence(lambda _: {"shares": seen, "running": 4, "slots": 4})])
    cause = next(each for each in found.causes if each.kind == "starved")
    assert cause.figures["class"] == "slow"
    assert cause.figures["busiest"] == "urgent"
    assert "fair.floor" in cause.sentence


def test_nothing_starves_while_all_classes_run() -> None:
    shop = Shop()
    shop.send("a", 500)
    shop.send("b", 500)
    shop.run(200, 1.0)
    found = diagnose([evidence(lambda _: {"shares": snapshot(shop)})])
    assert "starved" not in [each.kind for each in found.causes]


def test_top_shows_classes() -> None:
    seen = Shop().snapshot()
    scene = TopScene("shop", 1.0, (WorkerScene("charge", evolve(seen, shares=starving())),), {})
    console = Console(width=100)
    with console.capture() as captured:
        console.print(view(scene))
    text = captured.get()
    assert "(strict): 2" in text
    assert "urgent: 4 running" in text


@pytest.mark.parametrize(
    "fair",
    [
        {"by": "header('tenant')"},
        {"by": "topic", "order": "strict", "weights": {"urgent": 9}, "floor": "0%"},
    ],
    ids=["weighted", "strict"],
)
def test_check_says_how_far_it_reaches(
    commands: Commands, fair: dict[str, Any], golden: Golden
) -> None:
    commands.application(APPLICATION)
    worker = {"group": "g", "fair": fair, "window": {"cells": 4, "cell_records": 50}}
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    commands.configure({"kafka": kafka, "workers": {"charge": worker}})
    ended = commands.run("check", "shop:app", "-c", "workers.yaml")
    (line,) = (each for each in ended.out.splitlines() if f"by {fair['by']}" in each)
    golden(line)


def test_classes_that_are_keys_are_masked_like_the_keys() -> None:
    shop = Shop()
    shop.send("anna", 1)
    seen = shop.snapshot()
    assert seen.shares is not None
    seen = evolve(seen, shares=evolve(seen.shares, of_keys=True))
    shown = RecordView(Mask([]), MaskRules((MaskRule(topics=("orders",), whole=("key",)),)))
    found = shown.snapshot(seen, lambda topic, key: shown.rules.loggable_key([topic], key))
    assert found.shares is not None
    assert [each.name for each in found.shares.largest] == [MASKED]
