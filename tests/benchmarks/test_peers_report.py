from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import click
import pytest
from attrs import evolve

from benchmarks.peers import chart, table
from benchmarks.peers.command import CHART, PAGE, RESULTS, peers_command
from benchmarks.peers.comparison import Comparison
from benchmarks.peers.roster import PEERS
from tests.benchmarks.peers import COMPARISON, row, turn
from tests.benchmarks.test_command import benchmarks
from tests.golden_texts import Golden
from window_consumer.model.errors import UsageError

SVG = "{http://www.w3.org/2000/svg}"


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def cells_of(peer: str, workload: str) -> tuple[str, str]:
    """Return what both tables say of a peer in a workload: its rate, and its times."""
    found = []
    for part in table.section(COMPARISON, "peers.svg").split("\n\n"):
        lines = part.splitlines()
        if lines[0].startswith("| order kept"):
            column = cells(lines[0]).index(f"`{workload}`")
            (row,) = (each for each in map(cells, lines) if each[1].strip("*") == peer)
            found.append(row[column])
    rate, times = found
    return rate, times


def faults_of(peer: str) -> list[str]:
    lines = table.section(COMPARISON, "peers.svg").splitlines()
    return [line for line in lines if line.startswith(f"- {PEERS[peer].title}: `")]


def test_a_peer_has_its_rate_its_share_of_what_is_possible_and_its_times() -> None:
    peer = PEERS["parallel-consumer-key"].title
    assert cells_of(peer, "zipf") == ("450 / 0.45", "5.0, 40")


def test_what_a_peer_lost_and_repeated_is_listed(golden: Golden) -> None:
    golden("\n".join(faults_of("parallel-consumer-key")))


def test_rows_stand_by_the_order_that_is_kept_the_fastest_first() -> None:
    rows = table.in_order(COMPARISON, "zipf")
    by_order = [(PEERS[each.peer].order, each.records_per_s) for each in rows]
    assert [order for order, _ in by_order] == ["unordered", "key", "key", "partition"]
    assert [rate for order, rate in by_order if order == "key"] == [900.0, 450.0]


def test_a_peer_that_did_not_finish_says_how_far_it_came_and_its_commits_are_not_judged() -> None:
    rate, _ = cells_of(PEERS["aiokafka"].title, "zipf")
    assert rate.startswith("100 (40%)")
    assert faults_of("aiokafka") == []


def test_a_peer_without_order_is_judged_neither_by_order_nor_by_the_busiest_key() -> None:
    assert cells_of(PEERS["window-unordered"].title, "zipf") == ("600", "5.0, 40")
    assert faults_of("window-unordered") == []


def test_where_there_are_untimed_runs_the_rate_is_theirs_and_the_times_are_the_others() -> None:
    assert cells_of(PEERS["window-key"].title, "noop") == ("5,000", "5.0, 40")


def test_a_peer_that_failed_says_why_in_one_line(golden: Golden) -> None:
    assert cells_of(PEERS["aiokafka"].title, "noop") == ("failed", "failed")
    text = table.section(COMPARISON, "peers.svg")
    golden("\n".join(line for line in text.splitlines() if "trouble" in line))


def test_rows_are_medians_and_the_worst_counts_of_the_runs() -> None:
    several = row("window-key", "zipf", turn(1.0, lost=2), turn(9.0, p99_ms=90.0), turn(5.0))
    assert several.records_per_s == 5.0
    assert several.most("lost") == 2
    assert several.milliseconds("p99_ms") == 40.0


def test_versions_settings_machine_and_what_is_missing_are_reported() -> None:
    text = table.section(COMPARISON, "peers.svg")
    assert "| some-client 1.2.3 |" in text
    assert PEERS["window-key"].settings in text
    assert "Abacus" in text
    assert f"- {PEERS['parallel-consumer-unordered'].title}: no `mvn` found" in text


def test_a_busy_machine_is_reported(golden: Golden) -> None:
    quiet = table.section(COMPARISON, "x.svg")
    busy = evolve(COMPARISON, machine={**COMPARISON.machine, "load_before": 3.0})
    assert "busy" not in quiet
    (line,) = (each for each in table.section(busy, "x.svg").splitlines() if "busy" in each)
    golden(line)


def test_a_noting_run_that_did_not_finish_in_time_is_not_held_against_the_rate() -> None:
    found = row("window-key", "noop", turn(handled=400, uncommitted=9), turn(timed=False))
    assert found.complete
    assert (found.handled, found.uncommitted) == (1_000, 0)


def test_what_went_wrong_in_a_run_is_reported(golden: Golden) -> None:
    broken = evolve(COMPARISON, rows=[row("aiokafka", "zipf", turn(problem="did not stop"))])
    lines = table.section(broken, "x.svg").splitlines()
    golden("\n".join(each for each in lines if each.startswith(PEERS["aiokafka"].title)))


def test_the_table_goes_between_the_markers_and_nothing_else_changes() -> None:
    page = f"head\n{table.BEGIN}\n\nold\n\n{table.END}\ntail\n"
    assert table.put_into(page, "new") == f"head\n{table.BEGIN}\n\nnew\n\n{table.END}\ntail\n"


def test_a_page_without_markers_is_refused(golden: Golden) -> None:
    with golden.raises(UsageError):
        table.put_into("head\n", "new")


def test_the_page_has_the_markers() -> None:
    assert table.put_into(PAGE.read_text("utf-8"), "") != ""


def test_page_and_chart_show_what_was_measured() -> None:
    found = Comparison.load(RESULTS)
    text = table.section(found, "../images/peers.svg")
    stale = "stale: python -m benchmarks peers --render"
    assert table.put_into(PAGE.read_text("utf-8"), text) == PAGE.read_text("utf-8"), stale
    assert CHART.read_text("utf-8") == chart.draw(found), stale


def test_a_comparison_is_kept_as_json(tmp_path: Path) -> None:
    COMPARISON.save(tmp_path / "peers.json")
    kept = Comparison.load(tmp_path / "peers.json")
    assert table.section(kept, "x.svg") == table.section(COMPARISON, "x.svg")
    assert chart.draw(kept) == chart.draw(COMPARISON)


def test_a_later_comparison_keeps_the_rows_that_it_has_not_measured() -> None:
    later = Comparison({}, [row("window-key", "zipf", turn(1.0))], {"aiokafka": "sold out"})
    both = later.with_rows_of(COMPARISON)
    assert len(both.rows) == len(COMPARISON.rows)
    measured_again, kept = both.row("window-key", "zipf"), both.row("window-unordered", "zipf")
    assert measured_again is not None
    assert measured_again.records_per_s == 1.0
    assert kept is not None
    assert kept.records_per_s == 600.0
    assert both.missing == {**COMPARISON.missing, "aiokafka": "sold out"}


class TestChart:
    def drawn(self) -> ET.Element:
        return ET.fromstring(chart.draw(COMPARISON))  # noqa: S314 - our own picture

    def bars(self, *kinds: str) -> list[float]:
        found = [rect for rect in self.drawn().iter(f"{SVG}rect") if rect.get("class") != "page"]
        return [float(str(rect.get("width"))) for rect in found if rect.get("class") in kinds]

    def test_it_names_every_peer_and_workload(self) -> None:
        said = {text.text for text in self.drawn().iter(f"{SVG}text")}
        assert {row.peer for row in COMPARISON.rows} <= said
        assert {"noop, records/s", "zipf, records/s"} <= said

    def test_bars_are_as_long_as_the_rates(self) -> None:
        ours = self.bars("ours")
        assert len(ours) == 3
        fastest_of_zipf = max(ours)
        assert min(ours) == pytest.approx(fastest_of_zipf * 600 / 900, abs=0.1)

    def test_who_did_not_finish_looks_otherwise(self) -> None:
        assert len(self.bars("other unfinished")) == 2
        assert "400 of 1,000" not in chart.draw(COMPARISON)
        assert "100, not finished" in chart.draw(COMPARISON)

    def test_it_says_of_each_workload_what_it_is(self) -> None:
        said = " ".join(str(text.text) for text in self.drawn().iter(f"{SVG}text"))
        assert all(
            table.what(table.in_order(COMPARISON, name)) in said for name in ("noop", "zipf")
        )
        assert "(run with 1,000 records)" in said

    def test_a_loss_is_said(self) -> None:
        assert "450, 3 lost" in chart.draw(COMPARISON)

    def test_it_can_be_read_on_light_and_on_dark(self) -> None:
        light, _, dark = chart.draw(COMPARISON).partition("prefers-color-scheme: dark")
        for name in ("text", r"\.page", r"\.ours", r"\.other"):
            colours = [re.search(rf"{name} {{[^}}]*?fill: (#\w+)", part) for part in (light, dark)]
            assert all(colours), name
            assert len({each[1] for each in colours if each}) == 2, name

    def test_nothing_stands_outside_of_the_picture(self) -> None:
        picture = self.drawn()
        wide, high = float(str(picture.get("width"))), float(str(picture.get("height")))
        for each in picture.iter():
            if each.get("x") is not None:
                assert 0 <= float(str(each.get("x"))) + float(each.get("width") or 0) <= wide
                assert 0 <= float(str(each.get("y"))) <= high


def peers(*arguments: str) -> Any:
    return peers_command.main(list(arguments), standalone_mode=False)


class TestCommand:
    def test_it_lists_peers_and_workloads(self) -> None:
        done = benchmarks("peers", "--list")
        assert done.code == 0
        assert {"window-key", "parallel-consumer-key", "zipf"} <= set(done.out.split())

    def test_an_unknown_peer_is_wrong_usage_and_the_nearest_one_is_named(self) -> None:
        reported = "there is no peer 'windw-partition'; did you mean window-partition?"
        with pytest.raises(click.UsageError, match=re.escape(reported)):
            peers("--only", "window-key,windw-partition")

    def test_an_unknown_workload_is_wrong_usage(self, golden: Golden) -> None:
        with golden.raises(click.UsageError):
            peers("--workloads", "nop")

    def test_results_that_could_not_be_kept_are_refused_before_anything_runs(
        self, tmp_path: Path, golden: Golden
    ) -> None:
        with golden.raises(click.UsageError):
            peers("--results", str(tmp_path / "missing" / "try.json"))

    def test_rendering_without_results_is_wrong_usage(self, tmp_path: Path, golden: Golden) -> None:
        with golden.raises(UsageError):
            peers("--render", "--results", str(tmp_path / "none.json"))

    def test_rendering_what_is_no_comparison_is_wrong_usage(
        self, tmp_path: Path, golden: Golden
    ) -> None:
        other = tmp_path / "other.json"
        for text in ("no json", '{"rows": [{"peer": 1}]}'):
            other.write_text(text)
            with golden.raises(UsageError):
                peers("--render", "--results", str(other))

    def test_rendering_writes_table_and_chart_beside_other_results(self, tmp_path: Path) -> None:
        COMPARISON.save(tmp_path / "try.json")
        before = PAGE.read_bytes()
        assert peers("--render", "--results", str(tmp_path / "try.json")) == 0
        assert (tmp_path / "try.md").read_text("utf-8").startswith("![")
        ET.fromstring((tmp_path / "try.svg").read_text("utf-8"))  # noqa: S314 - our own picture
        assert PAGE.read_bytes() == before
