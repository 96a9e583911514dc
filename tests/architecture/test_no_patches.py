"""Our own code is never patched: what a test has to set is a parameter."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

_PATCHES = {"setattr", "delattr", "setitem", "delitem"}


def patches(source: str) -> Iterator[int]:
    """Yield the lines that patch something of the package, by monkeypatch or mock.

    A name is the package's if it was imported from there, or assigned in the test: whatever is not
    imported from elsewhere.
    """
    tree = ast.parse(source)
    theirs = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        and not (getattr(node, "module", None) or "").startswith("window_consumer")
        for alias in node.names
        if not alias.name.startswith("window_consumer")
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            owner, what = ast.unparse(node.func.value), node.func.attr
            target = node.args[0]
            root = ast.unparse(target).partition(".")[0]
            by_text = isinstance(target, ast.Constant) and "window_consumer" in str(target.value)
            of_modules = what in {"setitem", "delitem"} and any(
                isinstance(each, ast.Constant) and "window_consumer" in str(each.value)
                for each in node.args
            )
            is_patch = what in _PATCHES and owner not in {"object", "builtins"}
            is_mock = what in {"patch", "object"} and "mock" in owner
            ours = root not in theirs and what in {"setattr", "delattr"}
            if is_mock or (is_patch and (by_text or of_modules or ours)):
                yield node.lineno


def patched() -> dict[str, list[int]]:
    found = {
        str(file.relative_to(TESTS)): list(patches(file.read_text("utf-8")))
        for file in sorted(TESTS.rglob("*.py"))
        if file != Path(__file__)
    }
    return {name: lines for name, lines in found.items() if lines}


def test_no_test_patches_our_own_code() -> None:
    assert patched() == {}


@pytest.mark.parametrize(
    "source",
    [
        "from window_consumer.admin import feed\nmonkeypatch.setattr(feed, 'MOST_PAGES', 2)",
        "from window_consumer.kafka import Lifeline as L\nmonkeypatch.setattr(L, 'note', None)",
        "import window_consumer.admin.feed as m\nmonkeypatch.setattr(m, 'MOST_PAGES', 2)",
        "writer = made()\nmonkeypatch.setattr(writer._client, 'producer', None)",
        "monkeypatch.setattr('window_consumer.admin.feed.MOST_PAGES', 2)",
        "import sys\nmonkeypatch.setitem(sys.modules, 'window_consumer.admin', None)",
        "from unittest import mock\nmock.patch('window_consumer.admin.feed')",
    ],
)
def test_a_patch_is_found(source: str) -> None:
    assert list(patches(source))


@pytest.mark.parametrize(
    "source",
    [
        "import os\nmonkeypatch.setattr(os, 'sched_getaffinity', None)",
        "from pathlib import Path\nmonkeypatch.setattr(Path, 'mkdir', None)",
        "monkeypatch.setenv('HOME', '/')",
        "import sys\nmonkeypatch.setitem(sys.modules, 'uvloop', None)",
    ],
)
def test_patches_of_others_are_left_alone(source: str) -> None:
    assert not list(patches(source))


def test_no_mocks_are_installed() -> None:
    assert importlib.util.find_spec("pytest_mock") is None
