"""The manifests of the Kubernetes page fit each other, and what ``check`` says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.applications import SHOP
from tests.commands import Commands
from tests.docs.pages import ROOT, blocks
from tests.kernel import FEATURES, METRICS
from window_consumer.config import load
from window_consumer.config.units import parse_size
from window_consumer.metrics.exposition import prometheus_name
from window_consumer.metrics.feature import HealthConfig, routes_of
from window_consumer.metrics.health import Health
from window_consumer.runtime.figures.measures import MeasuredWorkers

PAGE = ROOT / "docs/kubernetes.md"
MOUNTED = "/run/secrets/kafka/password"


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    found = [yaml.safe_load(block.text) for block in blocks(PAGE, "yml")]
    return {each["kind"]: each for each in found}


@pytest.fixture(scope="module")
def pod(manifests: dict[str, Any]) -> Any:
    return manifests["Deployment"]["spec"]["template"]["spec"]


@pytest.fixture
def configuration(manifests: dict[str, Any], tmp_path: Path) -> str:
    secret = tmp_path / "password"
    secret.write_text("geheim")
    text = manifests["ConfigMap"]["data"]["workers.yaml"]
    assert MOUNTED in text
    return str(text.replace(MOUNTED, str(secret)))


@pytest.fixture
def checked(commands: Commands, configuration: str) -> Commands:
    commands.application(SHOP)
    commands.configure(configuration)
    return commands


def test_what_check_says_is_what_the_pod_is_given(checked: Commands, pod: Any) -> None:
    environment = {each["name"]: each["value"] for each in pod["containers"][0]["env"]}
    ended = checked.run("check", "shop:app", "--json", env=environment)
    assert ended.code == 0, ended.said
    process = ended.json["process"]
    assert process["termination_grace_period_s"] == pod["terminationGracePeriodSeconds"]
    limit = parse_size(pod["containers"][0]["resources"]["limits"]["memory"] + "B")
    assert process["resident_bytes"] < limit
    shown = checked.run("check", "shop:app", env=environment).out
    for line in PAGE.read_text("utf-8").split("...\n", 1)[1].split("```")[0].splitlines():
        assert line.partition(";")[0] in shown  # this machine may have another limit


def test_probes_ask_where_the_process_answers(
    configuration: str, pod: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "kafka:9092")
    file = tmp_path / "workers.yaml"
    file.write_text(configuration)
    address = load(file, sections=FEATURES.sections).config.section(HealthConfig).address
    assert address is not None
    (container,) = pod["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    known = routes_of(Health(MeasuredWorkers()))
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        asks = container[probe]["httpGet"]
        assert ports[asks["port"]] == address.port
        assert asks["path"] in known
        assert container[probe]["timeoutSeconds"] >= 1


def test_the_scaler_asks_for_metrics_that_there_are(manifests: dict[str, Any]) -> None:
    scaled = manifests["ScaledObject"]["spec"]
    assert scaled["scaleTargetRef"]["name"] == manifests["Deployment"]["metadata"]["name"]
    names = {prometheus_name(metric) for metric in METRICS}
    for trigger in scaled["triggers"]:
        asked = re.findall(r"\bwindow_consumer_\w+", trigger["metadata"]["query"])
        assert asked
        assert set(asked) <= names


def test_every_volume_is_mounted_and_every_mount_is_a_volume(pod: Any) -> None:
    (container,) = pod["containers"]
    volumes = {each["name"] for each in pod["volumes"]}
    assert volumes == {each["name"] for each in container["volumeMounts"]}
