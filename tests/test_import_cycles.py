"""Modules do not import each other in circles, not even for types."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import window_consumer

MOST = 3
"""So many modules may import each other: a value and what it belongs to, and one more."""

Graph = Mapping[str, set[str]]


def import_graph(root: Path) -> Graph:
    """Return what each module of a package imports of it at its top level, for types included."""
    files = {_module_name(root, path): path for path in root.rglob("*.py")}
    return {
        name: {each for each in _imported(path, files) if each != name}
        for name, path in files.items()
    }


def _module_name(root: Path, path: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for statement in _top_level(ast.parse(path.read_text()).body):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names if alias.name in known)
        elif isinstance(statement, ast.ImportFrom) and statement.module is not None:
            for alias in statement.names:
                submodule = f"{statement.module}.{alias.name}"
                imported = submodule if submodule in known else statement.module
                if imported in known:
                    yield imported


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run on import, or would if types were checked."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If):
            yield from _top_level(statement.body + statement.orelse)
        elif isinstance(statement, ast.Try):
            yield from _top_level(statement.body + statement.orelse + statement.finalbody)
            for handler in statement.handlers:
                yield from _top_level(handler.body)


def cycles(graph: Graph) -> list[set[str]]:
    """Return the largest sets of modules each of which imports all others, directly or not."""
    reachable = {name: _reachable(graph, name) for name in graph}
    found: list[set[str]] = []
    for name, others in reachable.items():
        cycle = {name, *(each for each in others if name in reachable[each])}
        if len(cycle) > 1 and cycle not in found:
            found.append(cycle)
    return found


def _reachable(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    pending = [start]
    while pending:
        for each in graph[pending.pop()] - found:
            found.add(each)
            pending.append(each)
    return found


def test_at_most_three_modules_import_each_other() -> None:
    graph = import_graph(Path(window_consumer.__path__[0]))
    assert len(graph) > 300
    assert [sorted(cycle) for cycle in cycles(graph) if len(cycle) > MOST] == []


@pytest.fixture
def circle(tmp_path: Path) -> Path:
    """Return a package of which four modules import each other, each in another way."""
    root = tmp_path / "circle"
    sources = {
        "__init__": "",
        "one": "from circle import two",
        "two": "if TYPE_CHECKING:\n    from circle.three import Three",
        "three": "try:\n    import circle.inner.four\nexcept ImportError:\n    pass",
        "inner/__init__": "",
        "inner/four": "from circle.one import One",
        "five": "from circle.one import One",
        "six": "def later():\n    from circle.six import Six",
    }
    for name, source in sources.items():
        path = root / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return root


def test_a_cycle_is_found_whichever_way_its_modules_are_imported(circle: Path) -> None:
    (found,) = cycles(import_graph(circle))
    assert found == {"circle.one", "circle.two", "circle.three", "circle.inner.four"}


def test_a_module_that_only_imports_is_in_no_cycle(circle: Path) -> None:
    graph = import_graph(circle)
    assert graph["circle.five"] == {"circle.one"}
    assert not any("circle.five" in cycle for cycle in cycles(graph))
