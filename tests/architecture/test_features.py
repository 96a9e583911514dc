"""Features are objects in one list, which app and the command line drive without naming them."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import click
import pytest

import window_consumer
from window_consumer.app.features import FEATURES
from window_consumer.plan.feature import Feature

PACKAGE = Path(window_consumer.__path__[0])
KERNEL = {"app", "cli", "config", "engine", "kafka", "model", "plan", "runtime"}


def test_each_feature_of_the_list_is_one_and_has_a_name_of_its_own() -> None:
    assert all(isinstance(feature, Feature) for feature in FEATURES.each)
    names = [feature.name for feature in FEATURES.each]
    assert len(set(names)) == len(names) == len(FEATURES.paths)


def test_each_module_named_feature_is_in_the_list() -> None:
    found = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in PACKAGE.rglob("feature.py")
    }
    assert found - {"window_consumer.plan.feature"} == {
        path.partition(":")[0] for path in FEATURES.paths
    }


@pytest.mark.parametrize("path", FEATURES.commands.values())
def test_each_command_of_a_feature_can_be_imported(path: str) -> None:
    module, _, name = path.partition(":")
    assert isinstance(getattr(import_module(module), name), click.Command)


def test_app_and_the_command_line_name_no_feature_but_in_the_list() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    named = re.compile(rf"(?<!`)window_consumer\.({'|'.join(sorted(folders - KERNEL))})\b")
    found = {
        str(path.relative_to(PACKAGE))
        for folder in ("app", "cli")
        for path in (PACKAGE / folder).rglob("*.py")
        if named.search(path.read_text("utf-8"))
    }
    assert found == {"app/features.py"}
