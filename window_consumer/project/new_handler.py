"""Adds a handler to a project: to its module, its configuration and its tests.

Files of users are changed by inserting text, so that comments and layout stay.
"""

from __future__ import annotations

import ast
import keyword
import re
import tomllib
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

import yaml
from attrs import frozen

from window_consumer.model.errors import UsageError
from window_consumer.project.new_project import project_name
from window_consumer.project.templates import filled

_PACKAGE: Final = "window_consumer"
_IMPORTED: Final = "Record"
"""The imports of each form."""


class HandlerForm(Enum):
    """The form of a handler; the value is the file with its code."""

    RECORD = "handler.py"
    COROUTINE = "async_handler.py"
    BATCH = "batch_handler.py"


@frozen
class ProjectLayout:
    """The places for a handler's parts in a project."""

    name: str
    module: Path
    app: str
    config: Path
    tests: Path


def add_handler(directory: Path, name: str, topic: str, form: HandlerForm) -> list[Path]:
    """Add a handler, its worker and its test; return the files that were written.

    Raises UsageError, before anything is written, if the name is taken or cannot be one, or if
    the directory has no project that can be changed.
    """
    if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
        raise UsageError(f"{name!r} cannot be the name of a function: use letters, digits and _")
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic) or topic in {".", ".."}:
        raise UsageError(f"{topic!r} cannot be a topic: Kafka allows letters, digits, . _ and -")
    layout = layout_of(directory)
    test = layout.tests / f"test_{name}.py"
    if test.exists():
        raise UsageError(f"{test} exists; choose another name, or remove it")
    values = {"app": layout.app, "handler": name, "name": layout.name, "topic": topic}
    parts = filled("parts", values)
    code = parts[form.value]
    texts = {
        layout.module: with_handler(_read(layout.module), layout, name, code),
        layout.config: with_worker(_read(layout.config), layout.config, name, parts["worker.yaml"]),
        test: parts["test_handler.py"],
    }
    layout.tests.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_bytes(text.encode())
    return list(texts)


def layout_of(directory: Path) -> ProjectLayout:
    """Read the place of the application from pyproject.toml; UsageError without one."""
    file = directory / "pyproject.toml"
    try:
        content = tomllib.loads(_read(file))
        options = content["tool"]["pytest"]["ini_options"]
        module, _, app = str(options["window_consumer_app"]).partition(":")
    except (FileNotFoundError, KeyError, TypeError):
        raise UsageError(
            f"{file} names no application: run this in the directory of a project, with"
            ' window_consumer_app = "handlers:app" below [tool.pytest.ini_options]'
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: {error}") from None
    if not app.isidentifier():
        raise UsageError(f"{file}: window_consumer_app must be MODULE:APP")
    paths = options.get("testpaths") or "tests"
    tests: str = (paths.split() if isinstance(paths, str) else paths)[0]
    name = content.get("project", {}).get("name")
    return ProjectLayout(
        name=name or project_name(directory),
        module=directory / f"{module.replace('.', '/')}.py",
        app=app,
        config=directory / options.get("window_consumer_config", "workers.yaml"),
        tests=directory / tests,
    )


def with_handler(source: str, layout: ProjectLayout, name: str, code: str) -> str:
    """Return a module with a handler at its end, and its imports."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise UsageError(f"{layout.module}:{error.lineno}: {error.msg}") from None
    bound = set(_bound(tree.body))
    if layout.app not in bound:
        raise UsageError(f"{layout.module} does not define {layout.app}")
    if name in bound:
        raise UsageError(f"{layout.module} already has {name}; choose another name")
    if _IMPORTED not in bound:
        source = _with_import(source, tree)
    return f"{source.rstrip()}\n\n\n{code}"


def with_worker(text: str, file: Path, name: str, worker: str) -> str:
    """Return a configuration with a worker at the end of ``workers``; UsageError if it cannot."""
    try:
        before = yaml.safe_load(text)
        root = yaml.compose(text)
    except yaml.YAMLError as error:
        raise UsageError(f"{file}: {error}") from None
    workers = _workers(root)
    if workers is None:
        raise UsageError(f"{file}: workers must be a block with a line for each worker")
    if name in before["workers"]:
        raise UsageError(f"{file} already has a worker {name}; choose another name")
    lines = text.splitlines(keepends=True)
    end = workers.end_mark
    at = end.line + (end.column > 0)
    while not lines[at - 1].strip() or lines[at - 1].startswith("#"):
        at -= 1
    if not lines[at - 1].endswith("\n"):
        lines[at - 1] += "\n"
    indent = " " * workers.value[0][0].start_mark.column
    lines[at:at] = [indent + line for line in worker.splitlines(keepends=True)]
    changed = "".join(lines)
    _check_added(before, changed, file, yaml.safe_load(worker))
    return changed


def _check_added(before: Mapping[str, Any], changed: str, file: Path, worker: Any) -> None:
    """Refuse a change that is not exactly one more worker: the layout is not understood."""
    try:
        after = yaml.safe_load(changed)
    except yaml.YAMLError:
        after = None
    if after != {**before, "workers": {**before["workers"], **worker}}:
        raise UsageError(f"{file}: cannot insert a worker into this layout; nothing was written")


def _workers(root: yaml.Node | None) -> yaml.MappingNode | None:
    if isinstance(root, yaml.MappingNode):
        for key, value in root.value:
            if key.value == "workers" and isinstance(value, yaml.MappingNode):
                return value if value.value and not value.flow_style else None
    return None


def _bound(body: Iterable[ast.stmt]) -> Iterable[str]:
    """Yield the names that a module's statements bind, without those in blocks."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for each in ast.walk(node):
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                    yield each.id


def _with_import(source: str, tree: ast.Module) -> str:
    """Return a module with the import, if possible in the line that imports from the package."""
    lines = source.splitlines(keepends=True)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in imports:
        line = lines[node.lineno - 1]
        is_plain = node.lineno == node.end_lineno and not {"#", ";", "("} & set(line)
        if isinstance(node, ast.ImportFrom) and node.module == _PACKAGE and is_plain:
            names = sorted([*map(ast.unparse, node.names), _IMPORTED])
            lines[node.lineno - 1] = f"from {_PACKAGE} import {', '.join(names)}\n"
            return "".join(lines)
    at = max((node.end_lineno or 0 for node in imports), default=0)
    lines.insert(at, f"from {_PACKAGE} import {_IMPORTED}\n")
    return "".join(lines)


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8: {error}") from None
