"""Reads YAML into raw values with line numbers; does not interpret the values.

PyYAML composes the nodes and resolves the scalars. Values are built from the nodes here, because
``safe_load`` drops positions and silently keeps the last of two equal keys.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import yaml
from yaml.reader import ReaderError

from window_consumer.config.problems import InvalidError, Problem
from window_consumer.config.tree import Path, Tree, ValueOrigin

MAX_VALUES: Final = 100_000
"""Nested aliases could otherwise make a short file fill the memory."""

MAX_NUMBER_LENGTH: Final = 64
"""Python refuses to print numbers of thousands of digits, and nobody intends them."""

_CORE: Final = "tag:yaml.org,2002:"
_MERGE: Final = _CORE + "merge"
_SCALAR_TAGS: Final = {_CORE + name for name in ("str", "int", "float", "bool", "null")}

Pairs = dict[str, tuple[yaml.ScalarNode, yaml.Node]]


class _Loader(yaml.SafeLoader):
    """A SafeLoader that reads dates as text: no key takes a date, but a name may look like one."""


_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] not in {_CORE + "timestamp", _CORE + "value"}]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_file(path: pathlib.Path) -> tuple[Tree, list[Problem]]:
    """Read a file with one YAML mapping; return it with the problems that did not stop reading.

    Raises InvalidError for the others.
    """
    name = str(path)
    content = b""
    try:
        content = path.read_bytes()
        text = content.decode("utf-8")
    except OSError as error:
        raise _fatal(ValueOrigin(name), f"cannot read the file: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _fatal(
            ValueOrigin(f"{name}:{line}", line), "not UTF-8; save the file as UTF-8"
        ) from error
    tree, problems = read_text(text, lambda line: ValueOrigin(f"{name}:{line}", line))
    if tree.value is None:
        raise _fatal(ValueOrigin(name), "the file is empty; it needs at least workers:")
    if not isinstance(tree.value, dict):
        raise _fatal(
            ValueOrigin(f"{name}:1", 1),
            "not a mapping; a configuration begins with keys such as workers:",
        )
    return tree, problems


def read_text(
    text: str, origin_of: Callable[[int], ValueOrigin], path: Path = ()
) -> tuple[Tree, list[Problem]]:
    """Read one YAML value for ``path``; ``origin_of`` gets a line number from 1 up.

    Raises InvalidError for invalid YAML.
    """
    reader = _Reader(origin_of)
    try:
        node = yaml.compose(text, Loader=_Loader)
        value = None if node is None else reader.value(node, path)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, origin_of) from error
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _fatal(
            origin_of(line), f"not valid YAML: the character U+{error.character:04X}"
        ) from error
    except RecursionError as error:
        raise _fatal(origin_of(1), "values are nested too deeply") from error
    reader.origins.setdefault(path, origin_of(1))
    return Tree(value, reader.origins), reader.problems


def read_scalar(text: str) -> Any:
    """Return a plain scalar as YAML reads it; never a collection.

    Raises ValueError for a text that looks like a number but is not one.
    """
    tag = _Loader("").resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call] # stubs
    return _construct(yaml.ScalarNode(tag, text)) if tag in _SCALAR_TAGS else text


def _construct(node: yaml.ScalarNode) -> Any:
    if node.tag != _CORE + "str" and len(node.value) > MAX_NUMBER_LENGTH:
        raise ValueError("too long for a number")
    try:
        return _Loader("").construct_object(node)
    except LookupError as error:  # PyYAML raises it for !!bool x and for an empty !!int
        raise ValueError(str(error)) from error


class _Reader:
    """Builds values from nodes, once."""

    def __init__(self, origin_of: Callable[[int], ValueOrigin]):
        self._origin_of = origin_of
        self._open: set[int] = set()
        self._reported: set[int] = set()
        self.origins: dict[Path, ValueOrigin] = {}
        self.problems: list[Problem] = []

    def value(self, node: yaml.Node, path: Path) -> Any:
        """Return a node's value; record origins and problems."""
        if len(self.origins) > MAX_VALUES:
            raise _fatal(self._origin(node), f"aliases expand to more than {MAX_VALUES} values")
        if isinstance(node, yaml.MappingNode) and node.tag == _CORE + "map":
            with self._inside(node):
                return {
                    key: self._entry(key_node, item, (*path, key))
                    for key, (key_node, item) in self._pairs(node, path).items()
                }
        if isinstance(node, yaml.SequenceNode) and node.tag == _CORE + "seq":
            with self._inside(node):
                return [
                    self._entry(item, item, (*path, index)) for index, item in enumerate(node.value)
                ]
        if isinstance(node, yaml.ScalarNode) and node.tag in _SCALAR_TAGS:
            return self._scalar(node, path)
        self._problem(node, path, "has an unknown YAML tag; remove it")
        return None

    def _entry(self, placed: yaml.Node, node: yaml.Node, path: Path) -> Any:
        self.origins[path] = self._origin(placed)
        return self.value(node, path)

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        if node.tag == _CORE + "str":
            return node.value
        origin = self.origins.get(path) or self._origin(node)
        self.origins[path] = ValueOrigin(origin.where, origin.line, node.value)
        try:
            return _construct(node)
        except ValueError:
            self._problem(
                node, path, f"is not a valid {node.tag.removeprefix(_CORE)}; quote it if it is text"
            )
            return node.value

    def _pairs(self, node: yaml.MappingNode, path: Path) -> Pairs:
        own: Pairs = {}
        merged: Pairs = {}
        for key, item in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._problem(key, path, "has a key that is not text")
            elif key.tag == _MERGE:
                for name, pair in self._merged(item, path).items():
                    merged.setdefault(name, pair)
            elif key.value in own:
                first = own[key.value][0].start_mark.line + 1
                message = f"is given twice, first in line {first}; keep one of them"
                self._problem(key, (*path, key.value), message)
            else:
                own[key.value] = key, item
        return merged | own

    def _merged(self, node: yaml.Node, path: Path) -> Pairs:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        pairs: Pairs = {}
        for source in sources:
            if not isinstance(source, yaml.MappingNode):
                self._problem(source, path, "merges (<<) something other than a mapping")
                continue
            with self._inside(source):
                for name, pair in self._pairs(source, path).items():
                    pairs.setdefault(name, pair)
        return pairs

    @contextlib.contextmanager
    def _inside(self, node: yaml.Node) -> Iterator[None]:
        if id(node) in self._open:
            raise _fatal(self._origin(node), "an alias is inside the value that it refers to")
        self._open.add(id(node))
        yield
        self._open.remove(id(node))

    def _problem(self, node: yaml.Node, path: Path, message: str) -> None:
        if id(node) not in self._reported:  # a node with aliases is built several times
            self._reported.add(id(node))
            self.problems.append(Problem(path, message, origin=self._origin(node)))

    def _origin(self, node: yaml.Node) -> ValueOrigin:
        return self._origin_of(node.start_mark.line + 1)


def _fatal(origin: ValueOrigin, message: str) -> InvalidError:
    return InvalidError(Problem((), message, origin=origin))


def _syntax_error(
    error: yaml.MarkedYAMLError, text: str, origin_of: Callable[[int], ValueOrigin]
) -> InvalidError:
    # An unquoted password may begin with * or !, so names from YAML's errors are not shown.
    problem, context = (
        re.sub(r"\b(alias|anchor|tag|handle) .*", r"\1", text or "")
        for text in (error.problem, error.context)
    )
    message = f"not valid YAML: {problem}" + (f", {context}" if context else "")
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return _fatal(origin_of(1), message)
    if "\\t" in problem:
        message += "; indent with spaces, not with tabs"
    elif mark.index and text[mark.index - 1] == "$":
        message += "; inside { } and [ ] write quotes around ${...}"
    elif mark.index and text[mark.index - 1] in "}]":
        message += "; write quotes around a value that begins with a brace or a bracket"
    elif problem.endswith(("alias", "tag", "start any token")):
        message += "; quote the value if it is text"
    origin = origin_of(mark.line + 1)
    column = "" if origin.line is None else f":{mark.column + 1}"
    return _fatal(ValueOrigin(origin.where + column, origin.line), message)
