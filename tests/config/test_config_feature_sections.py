"""A feature's section stands at the top of the file or in each worker, and is read from there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
from attrs import field, frozen

from window_consumer.config import LoadedConfig, config_page, json_schema, kinds, load
from window_consumer.config.options import Section, Sections, about
from window_consumer.config.problems import Problem
from window_consumer.config.sections.worker import WorkerConfig
from window_consumer.model.errors import ConfigError, WrongKey

Load = Callable[..., LoadedConfig]
WorkerText = Callable[..., str]


@frozen(kw_only=True)
class TallySection:
    step: int = field(
        default=1, metadata=about("How much a call counts.", kind=kinds.whole_number(1, 9))
    )
    most: int = field(
        default=5, metadata=about("Where it ends.", kind=kinds.whole_number(1, 9), reason="it does")
    )


def too_far(section: TallySection, given: Collection[str]) -> Iterator[Problem]:
    if "step" in given and section.step > section.most:
        yield Problem(("step",), "is more than the most")


SECTIONS = Sections(worker=(Section("tally", TallySection, "What calls count.", too_far),))


@pytest.fixture
def tallied(tmp_path: Path, worker_text: WorkerText) -> Load:
    """Load a worker with these lines, where workers have the section."""

    def load_lines(*lines: str, overrides: tuple[str, ...] = ()) -> LoadedConfig:
        file = tmp_path / "workers.yaml"
        file.write_text(worker_text(*lines))
        return load(file, {}, overrides, {}, sections=SECTIONS)

    return load_lines


def test_a_worker_has_the_section_as_it_is_given_or_its_defaults(tallied: Load) -> None:
    given = tallied("tally: {step: 2}").config.workers["charge"]
    assert given.section(TallySection) == TallySection(step=2)
    assert tallied().config.workers["charge"].section(TallySection) == TallySection()
    assert WorkerConfig(group="shop").section(TallySection) == TallySection()


def test_an_override_reaches_a_key_of_the_section(tallied: Load) -> None:
    loaded = tallied(overrides=("workers.charge.tally.step=3",))
    assert loaded.config.workers["charge"].section(TallySection).step == 3
    assert loaded.is_set(("workers", "charge", "tally"))
    assert not tallied().is_set(("workers", "charge", "tally"))


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("tally: {step: 10}", "tally.step"),
        ("tally: {stop: 1}", "tally.stop"),
        ("tally: 5", "tally"),
        ("tally: {step: 6}", "tally.step"),
        ("tall: {}", "tall"),
    ],
    ids=["a wrong value", "an unknown key", "no mapping", "a conflict", "an unknown section"],
)
def test_what_is_wrong_with_it_is_reported_at_its_line(tallied: Load, line: str, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        tallied(line)
    (wrong,) = refused.value.wrong
    assert isinstance(wrong, WrongKey)
    assert (Path(wrong.where).name, wrong.key) == ("workers.yaml:7", f"workers.charge.{key}")


def test_a_misspelt_key_of_the_worker_is_looked_for_in_it(tallied: Load) -> None:
    with pytest.raises(ConfigError, match=r"tally\.most"):
        tallied("most: 2")


def test_schema_and_page_describe_it_among_the_keys_of_a_worker() -> None:
    worker = json_schema(SECTIONS)["$defs"]["worker"]["properties"]
    assert worker["tally"]["properties"]["most"]["default"] == 5
    assert "| `workers.NAME.tally.most` |" in config_page(SECTIONS)
    assert "tally" not in json_schema()["$defs"]["worker"]["properties"]
