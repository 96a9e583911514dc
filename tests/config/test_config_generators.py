from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
import yaml

from tests.golden_texts import Golden
from window_consumer.app.features import FEATURES
from window_consumer.config import (
    BatchConfig,
    BreakerConfig,
    Config,
    DlqConfig,
    LoadedConfig,
    RetryConfig,
    StallConfig,
    TopicsConfig,
    WindowConfig,
    WorkerConfig,
    config_page,
    example,
    json_schema,
)
from window_consumer.config.kinds import ValueKind
from window_consumer.config.options import options, subsections
from window_consumer.config.sections.fair import FairConfig
from window_consumer.config.sections.guards import NewFailureConfig

Load = Callable[..., LoadedConfig]

SECTIONS = (
    StallConfig,
    BreakerConfig,
    DlqConfig,
    RetryConfig,
    TopicsConfig,
    WindowConfig,
    WorkerConfig,
)
KINDS = [
    pytest.param(attribute.default, option.kind, id=f"{section.__name__}.{key}")
    for section in SECTIONS
    for key, (attribute, option) in options(section).items()
    if option.kind is not None and option.default is None
]


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = json_schema(FEATURES.sections)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_example_loads(loaded: Load) -> None:
    worker = loaded(example()).config.workers["charge"]
    assert (worker.group, worker.ordering, worker.concurrency) == ("shop-charge", "key", 64)
    assert worker.retry.fatal == ("shop.InvalidOrder",)


def test_the_example_shows_every_key_of_a_worker_but_a_few() -> None:
    shown = yaml.safe_load(example())["workers"]["charge"]
    left_out = {"enabled", "patterns", "kafka", "routes", "batch", "on_new_failure", "fair"}
    left_out.add("broadcast")
    assert set(options(WorkerConfig)) - set(shown) == left_out
    for section in (BatchConfig, NewFailureConfig, FairConfig):
        assert all(f"{key}: " in example() for key in options(section)), "in a comment"
    assert set(options(RetryConfig)) - set(shown["retry"]) == {"retryable"}
    assert set(options(WindowConfig)) == set(shown["window"])
    assert set(options(StallConfig)) == set(shown["stall"])
    assert set(options(BreakerConfig)) - set(shown["breaker"]) == {"enabled"}


def test_the_example_is_valid_by_the_schema(validator: Any) -> None:
    assert validator.is_valid(yaml.safe_load(example()))


def test_the_page_shows_the_example_and_every_key_with_meaning_and_reason() -> None:
    page = config_page(FEATURES.sections)
    assert example() in page
    for section in SECTIONS:
        for key, (_, option) in options(section).items():
            rows = [line for line in page.splitlines() if f".{key}` |" in line]
            assert any(option.meaning in row and option.reason in row for row in rows)
            assert option.kind is None or option.reason or (option.default or "").startswith("none")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert all(row.count(" | ") in {1, 5} for row in rows)


def test_the_page_shows_types_ranges_and_defaults_as_they_are_written(golden: Golden) -> None:
    page = config_page(FEATURES.sections)
    rows = {line.split("`")[1]: line for line in page.splitlines() if "NAME." in line}
    assert "| size | `256MiB` | 8MiB to 1TiB |" in rows["workers.NAME.memory"]
    assert "| duration | `10s` |" in rows["workers.NAME.revoke_timeout"]
    golden(rows["workers.NAME.retry.backoff"])
    assert "| boolean | `true` |" in rows["workers.NAME.enabled"]


@pytest.mark.parametrize(("default", "kind"), KINDS)
def test_a_default_as_it_is_written_reads_as_the_default(default: Any, kind: ValueKind) -> None:
    assert kind.read(yaml.safe_load(kind.write(default))) == default


@pytest.mark.parametrize(("default", "kind"), KINDS)
def test_a_default_as_it_is_written_is_valid_by_the_schema(default: Any, kind: ValueKind) -> None:
    schema = {**kind.schema, "$defs": json_schema(FEATURES.sections)["$defs"]}
    raw = yaml.safe_load(kind.write(default))
    assert jsonschema.Draft202012Validator(schema).is_valid(raw)


_PARTS = ("retry", "window", "kafka", "breaker", "stall")


def sound() -> dict[str, Any]:
    return {
        "kafka": {"bootstrap.servers": "h:1", "consumer": {"fetch.min.bytes": 1}},
        "workers": {"w": {"topics": ["t"], "group": "g", **{part: {} for part in _PARTS}}},
        "topics": {},
        "dlq": {},
        "mask": [],
        "admin": {},
    }


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("stall", 5),
        ("workers", []),
        ("workers", {}),
        ("workers", {"a b": {}}),
        ("workers.w", 5),
        ("workers.w.stall", 5),
        ("workers.w.name", "w"),
        ("workers.w.topics", "t"),
        ("workers.w.topics", []),
        ("workers.w.topics", ["a/b"]),
        ("workers.w.topics", ["a", "a"]),
        ("workers.w.patterns", ["^a"]),
        ("workers.w.group", "a b"),
        ("workers.w.group", 5),
        ("workers.w.enabled", "true"),
        ("workers.w.enabled", 1),
        ("workers.w.concurrency", "8"),
        ("workers.w.concurrency", 0),
        ("workers.w.concurrency", 10_001),
        ("workers.w.concurrency", True),
        ("workers.w.concurrency", None),
        ("workers.w.ordering", "keys"),
        ("workers.w.memory", 5),
        ("workers.w.memory", 0),
        ("workers.w.memory", "64mb"),
        ("workers.w.commit_interval", 5),
        ("workers.w.commit_interval", "5"),
        ("workers.w.commit_interval", 0),
        ("workers.w.retry", 5),
        ("workers.w.retry.levels", ["10"]),
        ("workers.w.retry.backoff", "5s"),
        ("workers.w.retry.fatal", ["a b"]),
        ("workers.w.retry.when_spent", "dlq"),
        ("workers.w.window.cells", 1),
        ("workers.w.stall.after", "0"),
        ("workers.w.stall.action", "kill"),
        ("workers.w.stall.max_abandoned", -1),
        ("workers.w.breaker.failures", 0.5),
        ("workers.w.breaker.failures", "50"),
        ("workers.w.breaker.min_calls", 0),
        ("workers.w.breaker.cool_down", 30),
        ("workers.w.kafka.sasl", {"password": "x"}),
        ("kafka.consumer.producer", {"a": 1}),
        ("kafka.a", [1]),
        ("kafka.a", None),
        ("topics.dlq", "{topic}.dlq"),
        ("topics.create", "yes"),
        ("topics.dql", "x"),
        ("dlq", 5),
        ("dlq.mask", "iban"),
        ("dlq.mask", ["iban", "iban"]),
        ("dlq.msak", ["iban"]),
        ("mask", {"fields": ["iban"]}),
        ("mask", ["iban"]),
        ("mask", [{"topics": ["a/b"], "fields": ["iban"]}]),
        ("mask", [{"topics": [], "fields": ["iban"]}]),
        ("mask", [{"fields": "iban"}]),
        ("mask", [{"field": ["iban"]}]),
        ("mask", [{"whole": ["offset"]}]),
        ("admin.values", "yes"),
    ],
)
def test_what_is_wrong_is_invalid_by_the_schema_and_refused_by_the_loader(
    validator: Any, refused: Callable[..., str], path: str, value: Any
) -> None:
    document = sound()
    assert validator.is_valid(document)
    *parents, key = path.split(".")
    inner = document
    for parent in parents:
        inner = inner[parent]
    inner[key] = value
    assert not validator.is_valid(document)
    assert f"{path}" in refused(yaml.safe_dump(document))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("workers.w.enabled", "${E}"),
        ("workers.w.concurrency", "${N:-8}"),
        ("workers.w.memory", "${M}"),
        ("workers.w.stop_timeout", "${S}"),
        ("workers.w.stop_timeout", 0),
        ("workers.w.ordering", "${O}"),
        ("workers.w.topics", ["${T}"]),
        ("workers.w.group", "${G}.x"),
        ("workers.w.retry.backoff", "${B}..5s"),
        ("workers.w.retry", None),
        ("workers.w", None),
        ("kafka.a", "${file:/run/secrets/x}"),
        ("topics.dlq", "${D}"),
    ],
)
def test_references_zeros_and_empty_sections_are_valid_by_the_schema(
    validator: Any, path: str, value: Any
) -> None:
    document = sound()
    *parents, key = path.split(".")
    inner = document
    for parent in parents:
        inner = inner[parent]
    inner[key] = value
    assert validator.is_valid(document)


def test_the_schema_describes_every_key_and_gives_its_default(golden: Golden) -> None:
    schema = json_schema(FEATURES.sections)
    worker = schema["$defs"]["worker"]["properties"]
    assert all(schema["description"] for schema in worker.values())
    assert worker["memory"]["default"] == "256MiB"
    assert worker["window"]["properties"]["cells"]["default"] == 32
    assert "default" not in worker["concurrency"]
    golden(worker["concurrency"]["description"])
    assert worker["enabled"]["default"] is True
    assert worker["retry"]["properties"]["fatal"]["default"] == []
    assert set(schema["properties"]) == set(subsections(Config, FEATURES.sections))
