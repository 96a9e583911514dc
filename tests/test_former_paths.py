"""What docs have shown can still be imported."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from window_consumer.former_paths import MOVED, NAMES, PACKAGES
from window_consumer.spark import tables


@pytest.mark.parametrize(("former", "path"), MOVED.items())
def test_a_former_path_gives_the_module_of_today(former: str, path: str) -> None:
    module = import_module(f"window_consumer.{path}")
    assert import_module(f"window_consumer.{former}") is module
    assert module.__name__ == module.__spec__.name == f"window_consumer.{path}"  # type: ignore[union-attr]


def test_names_can_be_imported_from_former_packages() -> None:
    source = "from window_consumer.pipeline import schemas; print(schemas.DEAD_LETTERS)"
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(tables.DEAD_LETTERS)


@pytest.mark.parametrize(("place", "path"), NAMES.items())
def test_a_name_that_moved_is_still_in_its_former_module(place: tuple[str, str], path: str) -> None:
    module, name = place
    there = import_module(f"window_consumer.{path}")
    assert getattr(import_module(f"window_consumer.{module}"), name) is getattr(there, name)


def test_a_module_has_no_other_names() -> None:
    with pytest.raises(AttributeError):
        _ = tables.NOTHING


def test_a_former_module_still_runs_as_a_program() -> None:
    command = [sys.executable, "-m", "window_consumer.testing.simulator", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "--seeds" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_a_former_package_has_nothing_else(package: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        import_module(f"window_consumer.{package}.session")
