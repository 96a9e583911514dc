"""The figures of each scene; their bounds stand with the workload."""

from __future__ import annotations

from math import ceil

from benchmarks.breaker_scenes.course import Course, percentile
from benchmarks.breaker_scenes.scene import Figures, Judge, Scene

_P99 = 0.99


def stretch(begin_s: float, end_s: float) -> Judge:
    """Compare the healthy records with those of the run without a breaker."""

    def judge(scene: Scene, course: Course, free: Course | None) -> Figures:  # noqa: ARG001 - as declared
        if free is None:
            raise ValueError("a stretch is compared")
        healthy = [
            number
            for number, at_s in course.written_s.items()
            if begin_s <= at_s < end_s and number not in course.bad
        ]
        late = course.lateness_s(free, healthy)
        done, there = (each.done_between(begin_s, end_s) for each in (course, free))
        return {
            "stretch_rate": done / max(there, 1),
            "stretch_p99_s": percentile(late, _P99),
            "stretch_latest_s": late[-1] if late else 0.0,
            "stretch_done": done / max(len(healthy), 1),
        }

    return judge


def outage(down_s: float, up_s: float, per_s: float, *, is_short: bool = True) -> Judge:
    """Count what leaves, and measure how soon after the outage ``per_s`` are done again.

    A rate that was reached before the outage replaces ``per_s``. In a long outage, records may
    leave in each ``max_hold``; then the most within one count.
    """

    def judge(scene: Scene, course: Course, free: Course | None) -> Figures:  # noqa: ARG001 - as declared
        before = course.done_between(max(0.0, down_s - 2), down_s) / 2
        full_s = course.full_speed_after_s(up_s, min(per_s, before or per_s))
        if not is_short:
            most = course.most_moved_within(ceil(0.9 * (up_s - down_s) / 5))
            return {"outage_moved": most, "full_speed_after_long_outage_s": full_s}
        return {"outage_moved": len(course.moved()), "outage_full_speed_s": full_s}

    return judge


def moved(name: str) -> Judge:
    """Count the healthy records that leave."""

    def judge(scene: Scene, course: Course, free: Course | None) -> Figures:  # noqa: ARG001 - as declared
        return {name: len(course.moved())}

    return judge


def overload(per_s: float) -> Judge:
    """Compare with the rate that the service can do, until the end or the last record."""

    def judge(scene: Scene, course: Course, free: Course | None) -> Figures:  # noqa: ARG001 - as declared
        until_s = course.ended_s
        if len(course.times_s) == len(course.written_s):
            until_s = course.times_s[-1]
        return {
            "overload_share": len(course.times_s) / until_s / per_s,
            "overload_moved": len(course.moved()),
        }

    return judge


def end(scene: Scene, course: Course, free: Course | None) -> Figures:  # noqa: ARG001 - as declared
    """Measure how long the last bad record stayed after the last one had been called."""
    called = {each.number: each.ended_s for each in sorted(course.calls, reverse=True)}
    since_s = max((called[each] for each in course.bad if each in called), default=0.0)
    left = {each.number: each.at_s for each in course.departures}
    gone = set(left) >= course.bad
    return {"end_left_s": (max(left.values()) if gone else course.ended_s) - since_s}


def gap(begin_s: float, end_s: float) -> Judge:
    """Measure the longest time without a healthy record, while records keep coming."""

    def judge(scene: Scene, course: Course, free: Course | None) -> Figures:  # noqa: ARG001 - as declared
        return {"batch_gap_s": course.gap_s(begin_s, end_s)}

    return judge


def retries(begin_s: float, end_s: float, per_s: float) -> Judge:
    """Compare the healthy records' rate with ``per_s``, which they would have alone."""

    def judge(scene: Scene, course: Course, free: Course | None) -> Figures:  # noqa: ARG001 - as declared
        rate = course.done_between(begin_s, end_s) / (end_s - begin_s)
        return {"retries_rate": rate / per_s}

    return judge


def shard(down_s: float, up_s: float) -> Judge:
    """Compare the healthy keys with the run without a breaker; the others climb the ladder."""

    def judge(scene: Scene, course: Course, free: Course | None) -> Figures:  # noqa: ARG001 - as declared
        if free is None:
            raise ValueError("it is compared")
        late = course.lateness_s(free, course.written_s)
        settled_s = (down_s + up_s) / 2
        due = {each for each in course.bad if down_s <= course.written_s[each] < settled_s}
        climbed = {each.number for each in course.departures} & due
        done, there = (each.done_between(down_s, up_s) for each in (course, free))
        return {
            "shard_rate": done / max(there, 1),
            "shard_p99_s": percentile(late, _P99),
            "shard_climbed": len(climbed) / max(len(due), 1),
        }

    return judge
