"""The table of meaningless pairs: each row is refused, with both keys and their lines named."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.config.conftest import Refusal
from window_consumer.config import LoadedConfig, load
from window_consumer.config.conflicts import (
    CONFLICTS,
    Conflict,
    HandlerTrait,
    Setting,
    conflicts_of_handlers,
)
from window_consumer.config.structure import structure
from window_consumer.config.yaml_file import read_file
from window_consumer.engine.commits.delivery_guarantee import DeliveryMode

Load = Callable[..., LoadedConfig]
Refuse = Callable[..., Refusal]

OTHER_THAN_DEFAULT = {
    "batch": {"max_records": 5},
    "broadcast": {"from": "earliest"},
    "commit_interval": "500ms",
    "fair.by": "key",
    "fair.floor": "10%",
    "group": "shop",
    "on_no_offset": "latest",
    "on_out_of_range": "latest",
    "otherwise": "stop",
    "retry": {"attempts": 3},
    "retry.attempts_per_level": 2,
    "retry.crash_attempts": 2,
    "retry.levels": ["10s"],
    "retry.on_oversize": "stop",
    "retry.park": {"max_keys": 5},
    "retry.when_spent": "drop",
}
"""A value for each setting that is about any but the default, or about all that are written."""

SOUND_PARKING = {"ordering": "key", "retry.levels": ["10s"]}

IN_KEYS = [row for row in CONFLICTS if isinstance(row.other, Setting)]
OF_HANDLERS = [row for row in CONFLICTS if isinstance(row.other, HandlerTrait)]


def raw_values(setting: Setting) -> list[Any]:
    """Return the values that the setting is about, as in the file; None is left out there."""
    if not setting.values:
        return [OTHER_THAN_DEFAULT[setting.key]]
    return [list(each) if isinstance(each, tuple) else each for each in setting.values]


def text_of(*pairs: tuple[str, Any]) -> str:
    """Write a worker with these keys, each in a line of its own."""
    worker: dict[str, Any] = {"topics": ["orders"], "group": "shop"}
    for key, value in pairs:
        *sections, name = key.split(".")
        inner = worker
        for section in sections:
            inner = inner.setdefault(section, {})
        if value is not None:
            inner[name] = str(value) if isinstance(value, str) else value
    return yaml.safe_dump({"workers": {"charge": worker}}, sort_keys=False)


def line_of(text: str, key: str) -> int:
    """Return the line of a key; all names in these files are different."""
    name = key.rpartition(".")[2]
    found = [at for at, line in enumerate(text.splitlines(), 1) if line.strip() == f"{name}:"]
    begins = [
        at for at, line in enumerate(text.splitlines(), 1) if line.strip().startswith(f"{name}: ")
    ]
    return (found + begins)[0]


def examples() -> Iterator[Any]:
    for row in IN_KEYS:
        assert isinstance(row.other, Setting)
        for first, second in itertools.product(raw_values(row.key), raw_values(row.other)):
            name = f"{row.key.key}={first}-{row.other.key}={second}"
            yield pytest.param(row, first, second, id=name)


@pytest.mark.parametrize(("row", "first", "second"), list(examples()))
def test_each_pair_is_refused_with_both_keys_and_their_lines(
    refused: Refuse, row: Conflict, first: Any, second: Any
) -> None:
    assert isinstance(row.other, Setting)
    pair = {row.key.key: first, row.other.key: second}
    others = SOUND_PARKING if first == "park" else {}
    text = text_of(*{**others, **pair}.items())
    message = refused(text)
    place = f"workers.yaml:{line_of(text, row.key.key)}"
    assert (place, f"workers.charge.{row.key.key}") in message.wrong
    lines = message.splitlines()
    begin = next(at for at, line in enumerate(lines) if f"workers.charge.{row.key.key}: " in line)
    where = "" if second is None else f"workers.yaml:{line_of(text, row.other.key)}"
    assert f"{row.other.key} is" in lines[begin]
    assert where in lines[begin]
    assert row.why in message


def test_a_default_that_conflicts_is_named_as_such(refused: Refuse) -> None:
    message = refused(text_of(("retry.on_failure", "block")))
    assert message.wrong == (("workers.yaml:7", "workers.charge.retry.on_failure"),)
    assert "unordered (its default)" in message


def test_what_a_decorator_may_give_is_not_judged_without_it(tmp_path: Path) -> None:
    file = tmp_path / "workers.yaml"
    file.write_text(text_of(("retry.on_failure", "block")), encoding="utf-8")
    worker = load(file, without_handlers=True).config.workers["charge"]
    assert worker.retry.on_failure == "block"


def test_a_decorator_is_the_place_of_what_it_gives(refused: Refuse) -> None:
    handlers = {"charge": {"ordering": "key", "retry": {"levels": ["10s"]}}}
    message = refused(text_of(("retry.on_failure", "block")), handlers=handlers)
    assert message.wrong == (("@app.handler charge", "workers.charge.retry.levels"),)
    assert "retry.on_failure is block (workers.yaml:7)" in message


def test_a_misspelt_delivery_gets_a_hint(refused: Refuse) -> None:
    message = refused(text_of(("delivery", "at_most_onc")))
    assert message.wrong == (("workers.yaml:6", "workers.charge.delivery"),)
    assert "at_most_once" in message


def test_a_decorator_gives_the_delivery_and_the_plan_carries_it(loaded: Load) -> None:
    result = loaded(text_of(), handlers={"charge": {"delivery": "at_least_once"}})
    assert result.config.workers["charge"].delivery is DeliveryMode.AT_LEAST_ONCE


@pytest.mark.parametrize(
    ("keys", "interval_s"),
    [
        ({}, 0.5),
        ({"delivery": "exactly_once"}, 0.1),
        ({"delivery": "exactly_once", "commit_interval": "300ms"}, 0.3),
    ],
)
def test_a_transaction_ends_every_100_ms_unless_another_interval_is_given(
    loaded: Load, keys: dict[str, str], interval_s: float
) -> None:
    worker = loaded(text_of(*keys.items())).config.workers["charge"]
    assert worker.commit_interval_s == interval_s


@pytest.mark.parametrize("row", OF_HANDLERS, ids=lambda row: f"{row.key.key}-{row.other.name}")
def test_each_trait_of_a_handler_is_refused_with_the_key_and_its_line(
    tmp_path: Path, row: Conflict
) -> None:
    assert isinstance(row.other, HandlerTrait)
    for value in raw_values(row.key):
        file = tmp_path / "workers.yaml"
        file.write_text(text_of((row.key.key, value)), encoding="utf-8")
        tree, _ = read_file(file)
        config, _ = structure(tree)
        worker = config.workers["charge"]
        problems = list(conflicts_of_handlers(worker, tree, {row.other: "bill"}))
        assert [each.path for each in problems] == [row.key.path(worker)]
        assert f"bill {row.other.value}" in problems[0].message
        others = dict.fromkeys(set(HandlerTrait) - {row.other}, "bill")
        assert not list(conflicts_of_handlers(worker, tree, others))
