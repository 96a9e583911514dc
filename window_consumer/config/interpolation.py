"""``${VAR}``, ``${VAR:-default}`` and ``${file:/path}`` in the scalars of a configuration.

This works on parsed values, never on YAML text: a replacement stays a scalar, whatever it contains.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Mapping
from typing import Any, Final

from attrs import Factory, define

from window_consumer.config.problems import InvalidError, Problem
from window_consumer.config.tree import Path, Tree
from window_consumer.config.yaml_file import read_scalar

_REFERENCE = re.compile(
    r"""
    \$(?: (?P<dollar>\$)
        | \{ (?: file:(?P<file>[^}]+)
               | (?P<name>[A-Za-z_][A-Za-z0-9_]*) (?: :-(?P<default>[^}]*) )?
               ) \}
        | (?P<malformed>\{)
        )
    """,
    re.VERBOSE,
)

FORMS: Final = "${NAME}, ${NAME:-default} or ${file:/path}, and $$ for a dollar sign"


class Untyped(str):
    """Text from outside of YAML, whose type depends on its key.

    For a number or true/false, YAML's rules apply. Elsewhere it stays text, so that a password of
    digits keeps its leading zeros.
    """

    __slots__ = ()

    def typed(self) -> Any:
        """Return the text as YAML reads a plain scalar; None for an empty one."""
        try:
            return read_scalar(self)
        except ValueError:
            return str(self)


@define
class Interpolation:
    """Replaces references in scalars, and collects the secrets among the replacements."""

    environ: Mapping[str, str]
    directory: pathlib.Path
    """The base directory of relative file names."""
    secrets: set[str] = Factory(set)
    """The contents of all files that were inserted."""

    def apply(self, tree: Tree) -> tuple[Tree, list[Problem]]:
        """Return the tree with all references replaced, and the problems found."""
        problems: list[Problem] = []
        return Tree(self._value(tree.value, (), problems), tree.origins), problems

    def _value(self, value: Any, path: Path, problems: list[Problem]) -> Any:
        if isinstance(value, dict):
            return {key: self._value(item, (*path, key), problems) for key, item in value.items()}
        if isinstance(value, list):
            return [self._value(item, (*path, index), problems) for index, item in enumerate(value)]
        if not isinstance(value, str):
            return value
        try:
            return self.text(value)
        except InvalidError as error:
            problems.extend(problem.below(path) for problem in error.problems)
            return value

    def text(self, text: str) -> str:
        """Return the text with all references replaced; Untyped if it was a single reference.

        Raises InvalidError.
        """
        problems: list[str] = []

        def replace(found: re.Match[str]) -> str:
            try:
                return self._replacement(found)
            except ValueError as error:
                problems.append(str(error))
                return ""

        result = _REFERENCE.sub(replace, text)
        if problems:
            raise InvalidError(Problem((), "; ".join(problems)))
        whole = _REFERENCE.fullmatch(text)
        if isinstance(text, Untyped) or (whole and not whole["dollar"]):
            return Untyped(result)
        return result

    def _replacement(self, found: re.Match[str]) -> str:
        if found["dollar"]:
            return "$"
        if found["malformed"]:
            raise ValueError(f"is not a valid reference after ${{; write {FORMS}")
        if found["file"]:
            content = self._file(found["file"])
            self.secrets.add(content)
            return content
        name, default = found["name"], found["default"]
        value = self.environ.get(name)
        if default is not None:
            if "${" in default:
                raise ValueError(f"the default of ${{{name}}} holds another reference")
            return value or default.replace("$$", "$")
        if value is None:
            raise ValueError(
                f"the environment variable {name} is not set; "
                f"set it, or give a default: ${{{name}:-default}}"
            )
        return value

    def _file(self, name: str) -> str:
        try:
            with (self.directory / name).open(encoding="utf-8", newline="") as file:
                content = file.read()
        except OSError as error:
            raise ValueError(f"cannot read the file {name}: {error.strerror}") from error
        except ValueError as error:
            raise ValueError(f"the file {name} is not UTF-8 text") from error
        return re.sub(r"\r?\n\Z", "", content)
