from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve

from benchmarks import report
from benchmarks.breaker_scenes.catalog import SCENES
from benchmarks.breaker_scenes.course import Course, Departure, EndedCall
from benchmarks.breaker_scenes.running import chosen, joined, narrowed
from benchmarks.breaker_scenes.scene import Scene
from benchmarks.results import Measured
from benchmarks.workloads import WORKLOADS
from window_consumer.model.errors import UsageError

WORKLOAD = WORKLOADS["breaker-scenes"]


def course(*calls: EndedCall, bad: frozenset[int] = frozenset(), **more: Any) -> Course:
    written_s = {call.number: 0.0 for call in calls}
    return Course(written_s, bad, list(calls), **more)


def call(began_s: float, number: int, *, ok: bool = True, key: int = 0) -> EndedCall:
    return EndedCall(began_s, began_s + 0.5, number, key, number, ok)


def answer(figures: dict[str, float], **broken: int) -> dict[str, Any]:
    counted = {"lost": 0, "duplicates": 0, "order_violations": 0, **broken}
    return {"figures": figures, "seen": {}, "cpu_s": 1.0, "max_rss_mb": 80.0, **counted}


def measured(**figures: float) -> Measured:
    workload = evolve(
        WORKLOAD, floors=tuple(each for each in WORKLOAD.floors if each.ratio in figures)
    )
    return Measured(workload, [joined(workload, {"one": answer(figures)}, 1.0)])


def test_every_bound_is_about_a_figure_of_some_scene() -> None:
    figures = {figure for scene in SCENES.values() for figure in scene.figures}
    assert {floor.ratio for floor in WORKLOAD.floors} == figures | {"scatter_p99_ratio"}


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_every_scene_judges_itself_and_states_its_circumstances(scene: Scene) -> None:
    done = Course({0: 0.0, 1: 5.0}, frozenset({1}), [call(4.0, 0)], ended_s=10.0)
    assert scene.judge(scene, done, done).keys() >= set(scene.figures)
    stated = scene.stated()
    assert stated.keys() >= {"slots", "attempts", "keys", "window", "backlog", "live_per_s"}
    assert json.loads(json.dumps(stated)) == stated


def test_a_keys_records_stay_in_one_partition_and_every_number_comes_once() -> None:
    for scene in SCENES.values():
        traffic = scene.traffic
        found = traffic.records()
        assert traffic.keys % traffic.partitions == 0
        assert sorted(each.number for each in found) == list(range(len(found)))
        assert [each.at_s for each in found] == sorted(each.at_s for each in found)


def test_scenes_are_chosen_by_a_part_of_their_name_with_the_bounds_of_their_figures() -> None:
    assert chosen("outage-at-start") == ["outage-at-start"]
    assert set(chosen("")) > set(SCENES)
    found = narrowed(WORKLOAD, "overload-live")
    assert {floor.ratio for floor in found.floors} == {"overload_share", "overload_moved"}
    assert [floor.ratio for floor in narrowed(WORKLOAD, "scatter").floors] == ["scatter_p99_ratio"]
    with pytest.raises(UsageError, match="outage-at-start"):
        narrowed(WORKLOAD, "nonsense")


def test_the_worst_variant_stands_under_a_figures_name() -> None:
    answers = {
        "flat": answer({"overload_share": 0.9, "overload_moved": 3}),
        "steep": answer({"overload_share": 0.5, "overload_moved": 0}, lost=1),
    }
    run = joined(WORKLOAD, answers, 1.0)
    assert run.notes == {"overload_share": 0.5, "overload_moved": 3}
    assert run.worst == {"overload_share": "steep", "overload_moved": "flat"}
    assert run.lost == 1
    assert run.variants.keys() == answers.keys()


@pytest.mark.parametrize("name", ["outage_moved", "flap_moved", "overload_moved"])
def test_records_that_leave_in_an_outage_are_a_failure(name: str) -> None:
    assert not list(measured(**{name: 20}).failures())
    (problem,) = measured(**{name: 21}).failures()
    assert name in problem


def test_a_ratio_below_its_bound_is_missed_and_no_failure() -> None:
    found = measured(stretch_rate=0.5, overload_share=0.5)
    assert not list(found.failures())
    assert {floor.ratio for floor, _ in found.missed()} == {"stretch_rate", "overload_share"}


def test_the_report_names_the_worst_variants() -> None:
    found = report.as_json(measured(flap_moved=21), {})
    assert (found["flap_moved"], found["worst"]) == (21, {"flap_moved": "one"})
    assert found["variants"]["one"]["figures"] == {"flap_moved": 21}
    assert "(one)" in report.as_text(measured(flap_moved=21))


def test_a_copy_of_a_bad_record_does_not_count_as_moved() -> None:
    left = [Departure(1.0, 0, "dlq"), Departure(2.0, 1, "dlq"), Departure(9.0, 2, "dlq")]
    found = course(bad=frozenset({0}), departures=left)
    assert found.moved() == {1, 2}
    assert found.most_moved_within(5.0) == 1


def test_full_speed_counts_from_the_end_of_an_outage() -> None:
    slow = [call(10 + each / 5, each) for each in range(10)]
    fast = [call(12 + each / 50, 10 + each) for each in range(100)]
    assert course(*slow, *fast, ended_s=14).full_speed_after_s(10.0, 50) == pytest.approx(2.5, 0.1)
    assert course(*slow, ended_s=14).full_speed_after_s(10.0, 50) == pytest.approx(4.0)


def test_a_record_that_was_never_done_is_late_until_the_end() -> None:
    ours, other = course(call(1.0, 0), ended_s=9.0), course(call(0.0, 0), call(1.0, 1))
    assert ours.lateness_s(other, [0, 1, 2]) == [1.0, 7.5]


def test_a_call_beside_or_before_an_earlier_record_of_its_key_breaks_the_order() -> None:
    assert not course(call(0.0, 0, ok=False), call(1.0, 0), call(2.0, 1)).order_violations()
    assert course(call(0.0, 0), call(0.2, 1)).order_violations() == 1
    assert course(call(0.0, 1), call(1.0, 0)).order_violations() == 1
    assert not course(call(0.0, 0), call(0.2, 1, key=1)).order_violations()


def test_a_record_that_is_done_twice_counts() -> None:
    assert course(call(0.0, 0), call(1.0, 0), call(2.0, 1)).repeated() == 1
