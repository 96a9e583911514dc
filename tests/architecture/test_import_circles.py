"""Modules do not import each other in circles, not even for types or inside functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import window_consumer

Graph = Mapping[str, set[str]]


def import_graph(root: Path) -> Graph:
    """Return what each module of a package imports of it, for types and inside functions, too."""
    files = {_module_name(root, path): path for path in root.rglob("*.py")}
    return {
        name: {each for each in _imported(path, files) if each != name}
        for name, path in files.items()
    }


def _module_name(root: Path, path: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                imported = submodule if submodule in known else node.module
                if imported in known:
                    yield imported


def circles(graph: Graph) -> list[set[str]]:
    """Return the largest sets of modules each of which imports all others, directly or not."""
    reachable = {name: _reachable(graph, name) for name in graph}
    found: list[set[str]] = []
    for name, others in reachable.items():
        circle = {name, *(each for each in others if name in reachable[each])}
        if len(circle) > 1 and circle not in found:
            found.append(circle)
    return found


def _reachable(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    pending = [start]
    while pending:
        for each in graph[pending.pop()] - found:
            found.add(each)
            pending.append(each)
    return found


def test_no_modules_import_each_other() -> None:
    graph = import_graph(Path(window_consumer.__path__[0]))
    assert len(graph) > 300
    assert [sorted(circle) for circle in circles(graph)] == []


@pytest.fixture
def circle(tmp_path: Path) -> Path:
    """Return a package of which five modules import each other, each in another way."""
    root = tmp_path / "circle"
    sources = {
        "__init__": "",
        "one": "from circle import two",
        "two": "if TYPE_CHECKING:\n    from circle.three import Three",
        "three": "try:\n    import circle.inner.four\nexcept ImportError:\n    pass",
        "inner/__init__": "",
        "inner/four": "def later():\n    from circle.five import Five",
        "five": "from circle.one import One",
        "six": "from circle.one import One",
    }
    for name, source in sources.items():
        path = root / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return root


def test_a_circle_is_found_whichever_way_its_modules_are_imported(circle: Path) -> None:
    (found,) = circles(import_graph(circle))
    assert found == {f"circle.{name}" for name in ("one", "two", "three", "inner.four", "five")}


def test_a_module_that_only_imports_is_in_no_circle(circle: Path) -> None:
    graph = import_graph(circle)
    assert graph["circle.six"] == {"circle.one"}
    assert not any("circle.six" in found for found in circles(graph))
