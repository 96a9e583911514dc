"""What docs have shown can still be imported."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from window_consumer.former_paths import MOVED, PACKAGES
from window_consumer.spark import schemas


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
    assert done.stdout.strip() == str(schemas.DEAD_LETTERS)


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_a_former_package_has_nothing_else(package: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        import_module(f"window_consumer.{package}.session")
