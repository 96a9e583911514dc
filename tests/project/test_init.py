"""``init``: a project that runs, is tested and passes ``check`` as it is created."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.commands import Commands
from tests.docs.pages import ROOT
from tests.project.conftest import python, run_its_tests
from window_consumer.model.log_events import LogEvent
from window_consumer.project.new_project import project_name

FILES = {
    *("Dockerfile", "README.md", "compose.yaml", "handlers.py", "pyproject.toml", "send.py"),
    *("tests/test_charge.py", "workers.schema.json", "workers.yaml"),
}


def files_in(directory: Path) -> set[str]:
    return {str(each.relative_to(directory)) for each in directory.rglob("*") if not each.is_dir()}


def test_the_project_passes_its_own_test_and_check(shop: Commands) -> None:
    assert files_in(shop.directory) == FILES
    run_its_tests(shop.directory)
    checked = shop.run("check", "handlers:app")
    assert checked.code == 0, checked.said


def test_editors_complete_its_configuration_by_the_schema_of_this_version(shop: Commands) -> None:
    first, *_ = (shop.directory / "workers.yaml").read_text().splitlines()
    named = first.removeprefix("# yaml-language-server: $schema=")
    assert named != first
    schema = json.loads((shop.directory / named).read_text())
    assert schema == shop.run("schema").json
    content = yaml.safe_load((shop.directory / "workers.yaml").read_text())
    assert not [*jsonschema.Draft202012Validator(schema).iter_errors(content)]


def test_the_worker_runs_with_one_command_and_handles_what_send_sends(shop: Commands) -> None:
    running = shop.start("run", "handlers:app", "--embedded")
    running.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, worker="charge", partitions=4)
    (line,) = (each for each in running.said.splitlines() if each.startswith("embedded broker"))
    python(shop.directory, "send.py", KAFKA_BOOTSTRAP=line.rpartition(" ")[2])
    running.wait_for("charged customer", times=19)
    ended = running.stop()
    assert ended.code == 0
    assert ended.summary() == {"processed": 19, "dead_lettered": 1}


def test_its_readme_installs_from_where_its_container_does(shop: Commands) -> None:
    readme, dockerfile = ((shop.directory / f).read_text() for f in ("README.md", "Dockerfile"))
    (source, extra), *others = re.findall(r"pip install '([\w-]+)\[(\w+)\]'", readme)
    assert not others
    assert source in dockerfile.split()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert extra in project["optional-dependencies"]


def test_dev_runs_it_with_one_command_too(shop: Commands) -> None:
    running = shop.start("dev", "handlers:app", "--no-open")
    running.wait_for("dev: http://")
    (line,) = (each for each in running.said.splitlines() if "embedded broker" in each)
    python(shop.directory, "send.py", KAFKA_BOOTSTRAP=line.rpartition(" ")[2])
    running.wait_for("charged customer", times=19)
    assert running.stop().code == 0


def test_the_container_runs_the_same_worker_and_finds_its_topic(shop: Commands) -> None:
    compose = yaml.safe_load((shop.directory / "compose.yaml").read_text())["services"]
    command = (shop.directory / "Dockerfile").read_text().splitlines()[-1]
    assert command.removeprefix("CMD ") == '["window-consumer", "run", "handlers:app"]'
    assert compose.keys() == {"kafka", "topics", "worker"}
    assert "orders" in compose["topics"]["command"]
    address = compose["worker"]["environment"]["KAFKA_BOOTSTRAP"]
    assert address in compose["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]


def test_the_container_has_a_python_that_the_package_is_tested_on(shop: Commands) -> None:
    first, *_ = (shop.directory / "Dockerfile").read_text().splitlines()
    version = first.removeprefix("FROM python:").removesuffix("-slim")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]


def test_a_directory_that_is_not_empty_stays_as_it_is(commands: Commands) -> None:
    used = commands.directory / "used"
    used.mkdir()
    (used / ".hidden").touch()
    ended = commands.run("init", "used")
    assert (ended.code, ".hidden" in ended.err) == (2, True)
    assert files_in(used) == {".hidden"}


def test_an_empty_directory_that_is_there_is_taken(commands: Commands) -> None:
    (commands.directory / "new").mkdir()
    assert commands.run("init", "new").code == 0
    assert files_in(commands.directory / "new") == FILES


def test_a_file_is_no_directory_for_a_project(commands: Commands) -> None:
    (commands.directory / "taken").write_text("mine")
    for directory in ("taken", "taken/inside"):
        assert commands.run("init", directory).code == 2
    assert files_in(commands.directory) == {"taken"}


@pytest.mark.parametrize(
    ("directory", "name"),
    [("shop", "shop"), ("My Shop_2", "my-shop-2"), (".Shop.", "shop"), ("päckchen", "p-ckchen")],
)
def test_the_name_of_a_project_can_be_that_of_a_group_and_of_a_package(
    tmp_path: Path, directory: str, name: str
) -> None:
    assert project_name(tmp_path / directory) == name


@pytest.mark.parametrize("directory", ["___", "x" * 101])
def test_a_directory_whose_name_nothing_can_have_is_refused(
    commands: Commands, directory: str
) -> None:
    assert commands.run("init", directory).code == 2
    assert files_in(commands.directory) == set()
