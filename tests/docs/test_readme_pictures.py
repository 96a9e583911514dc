"""The pictures of README are drawn from what was measured, and what they show is true."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from benchmarks.peers.command import RESULTS
from benchmarks.peers.comparison import Comparison
from docs import crash_picture, throughput_picture
from docs.crash_recording import COMMIT_INTERVAL_S, HANGING, PARTITIONS, RECORDING, Crash, record
from tests.docs.pages import ROOT

README = (ROOT / "README.md").read_text("utf-8")


def test_the_chart_is_that_of_the_latest_results() -> None:
    drawn = throughput_picture.draw(Comparison.load(RESULTS))
    assert throughput_picture.PICTURE.read_text("utf-8") == drawn, (
        "stale: python -m docs.throughput_picture"
    )


def test_readme_says_the_rates_of_the_chart() -> None:
    (said,) = re.findall(r"!\[(.*?)\]\(docs/images/throughput\.svg\)", README)
    for bar in throughput_picture.bars(Comparison.load(RESULTS)):
        assert f"{bar.name} {bar.records_per_s:,.0f}" in said


def test_the_animation_is_that_of_the_recording() -> None:
    drawn = crash_picture.draw(Crash.load(RECORDING))
    assert crash_picture.PICTURE.read_text("utf-8") == drawn, "stale: python -m docs.crash_picture"


def test_the_pictures_are_images_without_scripts() -> None:
    for picture in (crash_picture.PICTURE, throughput_picture.PICTURE):
        root = ET.parse(picture).getroot()  # noqa: S314 - our own file
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert not root.findall(".//{*}script")
        assert "prefers-color-scheme: dark" in picture.read_text("utf-8")


def test_in_the_recording_the_others_go_on_behind_the_hanging_record() -> None:
    crash = Crash.load(RECORDING)
    partition, offset = HANGING
    assert HANGING in crash.interrupted
    assert {other for of, other in crash.finished_before if of == partition and other > offset}


def test_in_the_recording_only_what_was_unfinished_runs_again() -> None:
    crash = Crash.load(RECORDING)
    assert crash.repeated == crash.interrupted
    assert len(crash.finished) == crash.records * PARTITIONS
    assert len(crash.finished_before) > len(crash.repeated)


def test_after_kill_9_nothing_runs_again_that_had_finished_a_second_before() -> None:
    crash = record(records=10, slots=4, call_s=0.25, kill_after_s=2.2)
    assert len(crash.finished) == crash.records * PARTITIONS
    assert HANGING in crash.interrupted & crash.repeated
    long_before = crash.killed_s - COMMIT_INTERVAL_S - 1.0
    finished = {
        call.place
        for call in crash.of_process(1)
        if call.ended_s is not None and call.ended_s < long_before
    }
    assert len(finished) > crash.slots
    assert not finished & crash.repeated
