"""Alert rules and dashboard: they speak of metrics that there are, and say what they should."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs import dashboard
from tests.kernel import METRICS
from window_consumer.metrics.exposition import prometheus_name
from window_consumer.runtime.figures.metric import MetricKind

ROOT = Path(__file__).parents[2]
RULES = ROOT / "docs" / "monitoring" / "alerts.yml"
RULES_TEST = Path(__file__).parent / "alerts_test.yml"
RUNBOOK = ROOT / "docs" / "alerts.md"

_NAME = re.compile(r"\b(?:window_consumer|messaging)_[a-z_]+")


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def expressions() -> list[str]:
    panels = dashboard.dashboard()["panels"]
    drawn = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return [*drawn, *(rule["expr"] for rule in alerts())]


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("CI has to have promtool: Debian's package prometheus")
        pytest.skip("promtool is not installed: Debian's package prometheus has it")
    return found


def run(*command: str, directory: Path) -> str:
    ended = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def rules_in(directory: Path, rules: str) -> Path:
    (directory / "alerts.yml").write_text(rules)
    shutil.copy(RULES_TEST, directory)
    return directory


def test_the_rules_say_what_they_should_of_series_made_for_it(
    promtool: str, tmp_path: Path
) -> None:
    directory = rules_in(tmp_path, RULES.read_text())
    assert f"{len(alerts())} rules found" in run(
        promtool, "check", "rules", "alerts.yml", directory=directory
    )
    assert "SUCCESS" in run(promtool, "test", "rules", RULES_TEST.name, directory=directory)


@pytest.mark.parametrize("rule", range(len(alerts())))
def test_a_rule_that_never_fires_is_found(promtool: str, tmp_path: Path, rule: int) -> None:
    content = yaml.safe_load(RULES.read_text())
    content["groups"][0]["rules"][rule]["expr"] = "vector(0) > 1"
    directory = rules_in(tmp_path, yaml.safe_dump(content))
    ended = subprocess.run(
        [promtool, "test", "rules", RULES_TEST.name],
        cwd=directory,
        capture_output=True,
        check=False,
    )
    assert ended.returncode != 0


def test_rules_and_dashboard_speak_of_metrics_that_there_are() -> None:
    known = {prometheus_name(metric) for metric in METRICS}
    histograms = {prometheus_name(each) for each in METRICS if each.kind is MetricKind.HISTOGRAM}
    known |= {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    said = {name for expression in expressions() for name in _NAME.findall(expression)}
    assert said - known == set()
    assert len(said) > 15


def test_labels_that_are_asked_for_are_labels_of_the_metric() -> None:
    labels = {prometheus_name(each): {*each.labels, "worker", "process"} for each in METRICS}
    of_scrapes = {"job", "instance", "le"}
    for rule in alerts():
        name = _NAME.findall(rule["expr"])[-1]
        reported = set(re.findall(r"\$labels\.([a-z]+)", " ".join(rule["annotations"].values())))
        grouped = {
            each for by in re.findall(r"by \(([a-z, ]+)\)", rule["expr"]) for each in by.split(", ")
        }
        assert reported | grouped <= labels[name] | of_scrapes, rule["alert"]


def test_every_alert_has_its_entry_in_the_runbook() -> None:
    heads = re.findall(r"^### (WindowConsumer\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert heads == [rule["alert"] for rule in alerts()]
    for rule in alerts():
        assert rule["annotations"]["runbook"] == f"docs/alerts.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in {"warning", "critical"}


def test_the_dashboard_is_what_its_list_says() -> None:
    assert dashboard.FILE.read_text() == dashboard.text(), "run python -m docs.dashboard"


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard.dashboard()["panels"]:
        place = panel["gridPos"]
        fields = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & fields, panel["title"]
        assert place["x"] + place["w"] <= dashboard.WIDTH
        taken |= fields
