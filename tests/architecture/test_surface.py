"""Tests of a feature use its own folder, what is public, and where the kernel and features meet."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import window_consumer
import window_consumer.database
from tests.architecture.sources import PACKAGE

TESTS = Path(__file__).parents[1]
ADDING = PACKAGE.parent / "docs" / "adding-a-feature.md"
EXAMPLE = Path(__file__).with_name("small_feature.py")

OWN = {
    "admin": ["admin"],
    "at_most_once": [],
    "backfill": ["spark"],
    "broadcast": [],
    "console": ["admin", "audit", "dlq"],
    "database": ["database"],
    "delay": ["delay"],
    "dev": ["admin", "dev"],
    "dlq": ["dlq"],
    "doctor": ["admin"],
    "fair": [],
    "faststream": ["faststream"],
    "monitoring": ["metrics"],
    "new_failures": ["new_failures"],
    "parking": ["parking"],
    "pipeline": ["audit", "dlq", "spark", "trace"],
    "producer": ["producer"],
    "project": ["project"],
    "push": ["push"],
    "replay": ["replay"],
    "schedules": ["schedules"],
    "schema_registry": ["schema_registry"],
    "sqs": ["sqs", "web"],
    "telemetry": ["audit", "metrics", "trace"],
    "testing": ["testing"],
    "web": ["web"],
}
"""The packages that the tests of a folder may know whole. What is in the kernel alone has none."""

OTHERS = {
    *("app", "architecture", "benchmarks", "cli", "config", "conformance", "docs", "engine"),
    *("integration", "kafka", "login", "model", "runtime", "simulation", "typing"),
}
"""Folders with tests of the kernel, of its commands, and of many parts at once."""

PUBLIC = [
    *("testing", "kafka.embedded"),  # tests stand on them
    *("cli.main", "__main__"),  # commands
    *("config", "model"),  # what is configured, and the words for records and errors
    "plan",  # an application as features get it
]
PUBLIC_NAMES = {"": ["", *window_consumer.__all__], "database": window_consumer.database.__all__}
"""What packages export whose modules are not public."""

SEAMS = {
    "what a rule, an observer, a layer or a preparation derives from, and is handed": [
        *("engine.observer", "engine.turn", "engine.guards.pause_rule"),
        *("engine.commits.delivery_guarantee", "engine.commits.commit_metadata"),
        *("engine.partition", "engine.scheduling.slices"),
        *("runtime.calls.layer", "runtime.calls.steps", "runtime.calls.spans"),
        "runtime.partitions.preparation",
    ],
    "what a worker shows": [
        *("runtime.figures.measures", "runtime.figures.metric", "runtime.figures.worker_snapshot"),
        *("engine.windows_snapshot", "engine.shares_snapshot", "engine.cell_details"),
        *("engine.counters", "engine.latency_histogram", "engine.guards.breaker_state"),
    ],
    "what a worker and other processes answer": [
        *("engine.guards.interventions", "runtime.replica")
    ],
    "what serves an address": ["web.server"],
    "what Kafka answers": ["kafka.cluster.topics", "kafka.writing.batch_answers"],
}
"""Where the kernel and features meet; docs/adding-a-feature.md names each."""

MEET = [module for modules in SEAMS.values() for module in modules]


def internals(source: str, own: list[str]) -> Iterator[str]:
    """Yield the modules that a test of a feature imports, and should not know."""
    known = [*own, *PUBLIC, *MEET]
    for module, name in imported(source):
        meant = (module, f"{module}.{name}".lstrip("."))
        inside = any(each == it or each.startswith(f"{it}.") for it in known for each in meant)
        if not inside and name not in PUBLIC_NAMES.get(module, []):
            yield module


def imported(source: str) -> Iterator[tuple[str, str]]:
    """Yield the modules of the package that are imported, and what of each."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            found = [(node.module or "", alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found = [(alias.name, "") for alias in node.names]
        else:
            continue
        for module, name in found:
            package, _, inner = module.partition(".")
            if package == PACKAGE.name:
                yield inner, name


@pytest.mark.parametrize("folder", OWN)
def test_tests_of_a_feature_know_nothing_else_of_the_package(folder: str) -> None:
    found = {
        file.relative_to(TESTS).as_posix(): modules
        for file in sorted((TESTS / folder).rglob("*.py"))
        if (modules := sorted({*internals(file.read_text("utf-8"), OWN[folder])}))
    }
    assert found == {}, "use tests/engine/driver.py, tests/kernel.py, or the feature's own modules"


def test_each_folder_of_tests_is_of_features_or_of_the_kernel() -> None:
    folders = {each.parent.name for each in TESTS.glob("*/__init__.py")}
    assert folders == OWN.keys() | OTHERS
    assert not OWN.keys() & OTHERS


def test_the_page_about_adding_a_feature_names_each_seam() -> None:
    page, example = ADDING.read_text("utf-8"), {*imported(EXAMPLE.read_text("utf-8"))}
    of_example = {module for module, _ in example}
    unnamed = {each for each in MEET if f"{each.replace('.', '/')}.py" not in page}
    assert unnamed <= of_example


@pytest.mark.parametrize(
    "source",
    [
        "from window_consumer.engine.engine import Engine",
        "from window_consumer.app import limits",
        "from window_consumer import engine",
        "import window_consumer.runtime.poll_loop as loop",
        "def test_it():\n    from window_consumer.dlq import reader",
        "from window_consumer.database.once.once import Once",
        "from window_consumer.kafka.embedded_too import Broker",
    ],
)
def test_an_internal_is_found(source: str) -> None:
    assert [*internals(source, ["delay"])]


@pytest.mark.parametrize(
    "source",
    [
        "from window_consumer import App, Record",
        "from window_consumer.database import Once",
        "from window_consumer.delay import wheel",
        "from window_consumer.delay.wheel.rule import WheelRule",
        "from window_consumer.engine import turn",
        "from window_consumer.testing.clock import ManualClock",
    ],
)
def test_what_is_public_is_left_alone(source: str) -> None:
    assert not [*internals(source, ["delay"])]
