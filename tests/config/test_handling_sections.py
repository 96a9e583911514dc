"""A section of a worker that is its handler, so that the application needs none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import field, frozen

from window_consumer.config import LoadedConfig, kinds, load
from window_consumer.config.options import Section, Sections, about
from window_consumer.model.errors import ConfigError


@frozen(kw_only=True)
class HookConfig:
    url: str = field(default="", metadata=about("Where to.", kind=kinds.text("a URL")))


class CraneConfig(HookConfig):
    """Another one."""


def section(name: str, kind: type[HookConfig]) -> Section:
    return Section(name, kind, "Calls a URL.", handles=lambda given: bool(given.url))


SECTIONS = Sections(worker=(section("hook", HookConfig), section("crane", CraneConfig)))
WORKER = "workers:\n  orders:\n    topics: [orders]\n    group: shop\n"


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[[str], LoadedConfig]:
    def load_text(text: str) -> LoadedConfig:
        file = tmp_path / "workers.yaml"
        file.write_text(WORKER + text)
        return load(file, sections=SECTIONS)

    return load_text


def test_a_worker_is_handled_by_its_section(loaded: Callable[[str], LoadedConfig]) -> None:
    worker = loaded("    hook: {url: 'http://a'}\n").config.workers["orders"]
    assert (worker.handled_by, worker.handlers) == ("hook", ("orders",))
    assert worker.retry.on_failure == "overtake"
    assert loaded("").config.workers["orders"].handled_by == ""


def test_order_is_kept_unless_somebody_chooses(loaded: Callable[[str], LoadedConfig]) -> None:
    text = "    hook: {url: 'http://a'}\n    ordering: key\n"
    assert loaded(text).config.workers["orders"].retry.on_failure == "block"
    chosen = loaded(f"{text}    retry: {{on_failure: overtake, levels: [10s]}}\n")
    assert chosen.config.workers["orders"].retry.on_failure == "overtake"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("    handler: pay\n", "workers.orders.handler"),
        ("    pool: threads\n", "workers.orders.pool"),
        ("    otherwise: skip\n", "workers.orders.otherwise"),
        ("    crane: {url: 'http://b'}\n", "workers.orders.crane"),
        ("    ordering: key\n    retry: {levels: [10s]}\n", "workers.orders.retry.on_failure"),
    ],
)
def test_what_is_for_handlers_is_refused(
    text: str, key: str, loaded: Callable[[str], LoadedConfig]
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(f"    hook: {{url: 'http://a'}}\n{text}")
    assert [each.key for each in caught.value.wrong] == [key]
