"""``new handler``: a handler, its worker and its test, in files that users have changed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.commands import Commands
from tests.project.conftest import run_its_tests
from window_consumer.model.errors import UsageError
from window_consumer.project.new_handler import (
    HandlerForm,
    ProjectLayout,
    add_handler,
    layout_of,
    with_handler,
    with_worker,
)
from window_consumer.project.new_project import create_project

LAYOUT = ProjectLayout("shop", Path("handlers.py"), "app", Path("workers.yaml"), Path("tests"))
CODE = "def ship(record: Record) -> None: ...\n"
WORKER = "ship:\n  group: shop-ship\n"
INSERTED = "  ship:\n    group: shop-ship\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    create_project(tmp_path / "shop", {})
    return tmp_path / "shop"


def contents(directory: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in directory.rglob("*") if each.is_file()}


def test_each_form_of_handler_passes_its_own_test_and_check(shop: Commands) -> None:
    for arguments in (["ship", "--topic", "parcels"], ["mail", "--async"], ["store", "--batch"]):
        added = shop.run("new", "handler", *arguments, "--json")
        assert added.code == 0, added.said
        assert f"tests/test_{arguments[0]}.py" in added.json["written"]
    workers = yaml.safe_load((shop.directory / "workers.yaml").read_text())["workers"]
    assert list(workers) == ["charge", "ship", "mail", "store"]
    assert '@app.handler("parcels"' in (shop.directory / "handlers.py").read_text()
    run_its_tests(shop.directory)
    checked = shop.run("check", "handlers:app")
    assert checked.code == 0, checked.said


def test_a_handler_has_one_form(shop: Commands) -> None:
    before = contents(shop.directory)
    assert shop.run("new", "handler", "ship", "--async", "--batch").code == 2
    assert contents(shop.directory) == before


@pytest.mark.parametrize("name", ["charge", "App", "log", "class", "3x", "a-b", "größe", ""])
def test_a_name_that_is_taken_or_none_changes_nothing(project: Path, name: str) -> None:
    before = contents(project)
    with pytest.raises(UsageError):
        add_handler(project, name, "orders", HandlerForm.RECORD)
    assert contents(project) == before


@pytest.mark.parametrize("topic", ["", "a b", '")', "..", "x" * 250])
def test_a_topic_that_kafka_would_refuse_changes_nothing(project: Path, topic: str) -> None:
    before = contents(project)
    with pytest.raises(UsageError):
        add_handler(project, "ship", topic, HandlerForm.RECORD)
    assert contents(project) == before


def test_a_test_that_is_there_is_not_overwritten(project: Path) -> None:
    (project / "tests" / "test_ship.py").write_text("mine")
    before = contents(project)
    with pytest.raises(UsageError):
        add_handler(project, "ship", "ship", HandlerForm.RECORD)
    assert contents(project) == before


@pytest.mark.parametrize("text", [None, "", "[tool]\npytest = 1", "[", "[tool.pytest.ini_options]"])
def test_a_directory_without_a_project_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError):
        layout_of(tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("workers:\n  a: {}\n", "workers:\n  a: {}\n" + INSERTED),
        ("workers:\n    a: {}", "workers:\n    a: {}\n    ship:\n      group: shop-ship\n"),
        (
            "# first\nworkers:\n  a: {}  # one\n  # last\n\n# admin\nadmin: {}\n",
            "# first\nworkers:\n  a: {}  # one\n  # last\n" + INSERTED + "\n# admin\nadmin: {}\n",
        ),
    ],
)
def test_a_worker_is_inserted_and_comments_stay(text: str, expected: str) -> None:
    assert with_worker(text, LAYOUT.config, "ship", WORKER) == expected


@pytest.mark.parametrize(
    "text",
    ["", "workers:\n", "workers: {a: {}}\n", "kafka: {}\n", "workers: [", "workers:\n  ship: {}\n"],
)
def test_a_configuration_that_cannot_take_the_worker_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        with_worker(text, LAYOUT.config, "ship", WORKER)


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        ("from window_consumer import App", "from window_consumer import App, Record"),
        ("from window_consumer import Record as Record, App", None),
        (
            "from window_consumer import App  # ours",
            "from window_consumer import App  # ours\nfrom window_consumer import Record",
        ),
        (
            "from window_consumer import (\n    App,\n)",
            "from window_consumer import (\n    App,\n)\nfrom window_consumer import Record",
        ),
    ],
)
def test_a_module_imports_what_the_handler_needs(imports: str, expected: str | None) -> None:
    rest = '\n\napp = App("shop")\n'
    changed = with_handler(imports + rest, LAYOUT, "ship", CODE)
    assert changed == f"{expected or imports}{rest}\n\n{CODE}"


@pytest.mark.parametrize("source", ["def", "import window_consumer\n"])
def test_a_module_without_the_application_is_refused(source: str) -> None:
    with pytest.raises(UsageError):
        with_handler(source, LAYOUT, "ship", CODE)
