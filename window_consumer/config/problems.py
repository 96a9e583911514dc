"""Problems of a configuration, and the messages that report them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, Final

from attrs import evolve, field, frozen

from window_consumer.config.tree import Path, Tree, ValueOrigin, dotted
from window_consumer.model.errors import ConfigError, WrongKey
from window_consumer.model.record_contents import escaped
from window_consumer.model.redaction import Mask

NO_VALUE: Final[Any] = object()
"""For a problem whose message shows no value."""

MAX_SHOWN_CHARACTERS: Final = 80
"""The most characters of a wrong value: enough to recognise it, but no whole certificate."""


@frozen
class Problem:
    """One problem.

    ``message`` follows the key; with a ``value``, it continues a sentence that begins with the
    value. ``origin`` is needed only if it differs from the path's.
    """

    path: Path
    message: str
    value: Any = field(default=NO_VALUE, kw_only=True)
    origin: ValueOrigin | None = field(default=None, kw_only=True)

    def below(self, prefix: Path) -> Problem:
        """Return the same problem with ``prefix`` before its path."""
        return evolve(self, path=prefix + self.path)


class InvalidError(ValueError):
    """A value does not fit; the paths of its problems are relative to the value."""

    def __init__(self, *problems: Problem):
        super().__init__("; ".join(problem.message for problem in problems))
        self.problems = problems

    @classmethod
    def of(cls, value: Any, expected: str, wrong: str = "", hint: str = "") -> InvalidError:
        """Return the error of one value: what was expected, what is wrong, and a hint."""
        message = f"is not {expected}" + (f": it {wrong}" if wrong else "")
        return cls(Problem((), f"{message}; {hint}" if hint else message, value=value))


def to_error(problems: Sequence[Problem], tree: Tree, mask: Mask) -> ConfigError:
    """Return one error for all problems, in the order of the file.

    It shows only the first problem of a key: the others follow from it.
    """
    placed: dict[Path | int, tuple[ValueOrigin, Problem]] = {}
    for number, problem in enumerate(problems):
        origin = problem.origin or tree.origin(problem.path)
        placed.setdefault(problem.path or number, (origin, problem))
    in_order = sorted(placed.values(), key=lambda pair: pair[0].sort_key)
    text = mask("\n".join(_line(origin, problem, mask) for origin, problem in in_order))
    # Environment variables may hold bytes that cannot be printed.
    wrong = [WrongKey(origin.where, dotted(problem.path)) for origin, problem in in_order]
    return ConfigError(escaped(text), wrong)


def _line(origin: ValueOrigin, problem: Problem, mask: Mask) -> str:
    message = problem.message
    if problem.value is not NO_VALUE:
        # Show no and 0123 as written; YAML reads them as false and 83.
        number = isinstance(problem.value, bool | int | float)
        value = mask(origin.text) if number and origin.text else shown(problem.value, mask)
        message = f"{value} {message}"
    key = dotted(problem.path)
    if not key or origin.where == f"--set {key}":
        return f"{origin.where}: {message}"
    return f"{origin.where}: {key}: {message}"


def shown(value: Any, mask: Mask) -> str:
    """Describe a raw value in a message: a scalar in full, any other value by its type."""
    if isinstance(value, str):
        text = mask(value)
        if len(text) > MAX_SHOWN_CHARACTERS:
            text = text[:MAX_SHOWN_CHARACTERS] + "…"
        return repr(text)
    if value is None:
        return "an empty value"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return mask(str(value))
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list) else f"an object of {type(value).__qualname__}"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that was probably meant, or None."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint with the word that was probably meant, or an empty string."""
    meant = nearest(word, known)
    return f"did you mean {meant}?" if meant else ""
