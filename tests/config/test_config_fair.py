"""The section ``fair``: classes, weights, bounds, and what makes no sense."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.engine.support import Note
from window_consumer.config import LoadedConfig
from window_consumer.config.sections.fair import AtMost, at_most_kind, weights_kind
from window_consumer.engine.scheduling.shares.class_names import MAX_NAME
from window_consumer.engine.scheduling.shares.share_classes import FairRules
from window_consumer.plan.app_plan import fair_rules

Load = Callable[..., LoadedConfig]
Refuse = Callable[..., str]
WorkerText = Callable[..., str]


def rules(loaded: Load, worker_text: WorkerText, text: str) -> FairRules:
    config = loaded(worker_text(f"fair: {text}")).config.workers["charge"].fair
    found = fair_rules(config)
    assert found is not None
    return found


def test_all_keys(loaded: Load, worker_text: WorkerText) -> None:
    text = "{by: header('tenant'), weights: {gold: 5, default: 2}, order: strict, floor: 10%, "
    found = rules(loaded, worker_text, text + "at_most: 40%, max_classes: 7}")
    assert [found.weight_of(each) for each in ("gold", "iron", None)] == [5, 2, 2]
    assert (found.order, found.floor, found.max_classes) == ("strict", 0.1, 7)
    assert (found.most_share, found.most_slots) == (0.4, None)


def test_without_it_records_start_as_they_arrive(loaded: Load, worker_text: WorkerText) -> None:
    assert fair_rules(loaded(worker_text()).config.workers["charge"].fair) is None


@pytest.mark.parametrize(
    ("by", "name"),
    [
        ("key", "k1"),
        ("topic", "orders"),
        ("header('tenant')", "a\\xff"),
        ("header('none')", None),
        ("header('tenant') startswith 'a'", "true"),
        ("not key == 'k1'", "false"),
    ],
)
def test_the_class_of_a_record(
    loaded: Load, worker_text: WorkerText, by: str, name: str | None
) -> None:
    found = rules(loaded, worker_text, f'{{by: "{by}"}}')
    assert found.name_of("orders", Note(0, b"k1", headers=[("tenant", b"a\xff")])) == name


def test_long_names_stay_different_and_short(loaded: Load, worker_text: WorkerText) -> None:
    found = rules(loaded, worker_text, "{by: key}")
    names = {found.name_of("orders", Note(0, b"x" * 1024 + each)) for each in (b"1", b"2")}
    assert {len(each or "") for each in names} == {MAX_NAME}
    assert len(names) == 2


def test_a_long_name_has_the_weight_that_is_given_for_it(
    loaded: Load, worker_text: WorkerText
) -> None:
    long = "x" * 1024
    found = rules(loaded, worker_text, f"{{by: key, weights: {{{long}: 5}}}}")
    assert found.weight_of(found.name_of("orders", Note(0, long.encode()))) == 5


def test_what_is_written_is_read_again() -> None:
    for raw in ("40%", 8):
        kind = at_most_kind()
        assert kind.write(kind.read(raw)) == str(raw)
    assert weights_kind().write({"gold": 5.0, "default": 1.5}) == "{gold: 5, default: 1.5}"
    assert at_most_kind().read(8) == AtMost(slots=8)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("{weights: {a: 2}}", "fair.by: is missing"),
        ("{by: timestamp}", "there is no"),
        ("{by: tenant}", "there is no"),
        ("{by: \"header('tenant'\"}", "expected )"),
        ("{by: 5}", "5 is not key, topic, a header"),
        ("{by: key, weights: {a: 0}}", "fair.weights.a: is 0"),
        ("{by: key, weights: {a: -1}}", "fair.weights.a: -1 is not a number from"),
        ("{by: key, weights: {a: much}}", "fair.weights.a: 'much' is not a number from"),
        ("{by: key, weights: 3}", "3 is not a mapping of classes to weights"),
        ("{by: key, order: fifo}", "'fifo' is not one of shares or strict"),
        ("{by: key, floor: 10%}", "fair.floor: is 10%, and fair.order is shares (its default)"),
        ("{by: key, order: strict}", "fair.order: is strict, but all classes weigh the same"),
        ("{by: key, order: strict, weights: {a: 1}}", "all classes weigh the same"),
        ("{by: key, at_most: 0}", "0 is not a percentage of the slots such as 40%, or a number"),
        ("{by: key, at_most: 140%}", "is not a percentage of the slots"),
        ("{by: key, at_most: 17}", "fair.at_most: is 17 slots, and the worker has 16"),
        ("{by: key, wieghts: {}}", "did you mean weights"),
    ],
)
def test_what_makes_no_sense_is_refused(
    refused: Refuse, worker_text: WorkerText, text: str, wrong: str
) -> None:
    assert wrong in refused(worker_text(f"fair: {text}"))
