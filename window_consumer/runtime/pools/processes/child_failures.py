"""Failures on their way from a child process to its parent.

The rules read an exception's class and a few of its attributes; the child has already written its
readable text. Many exceptions cannot be pickled, so none is pickled as a whole: its class crosses
by name, with those arguments and attributes that can be pickled. For a class that the parent does
not know, such as one defined within a function, the parent creates a stand-in with the base classes
that it knows. Lists of fatal and retryable classes treat both alike.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from attrs import astuple

from window_consumer.model.fault import Failure, Fault

Kind = tuple[str, str]
"""Module and qualified name of a class."""

_KNOWN_STAND_INS = 256
_stand_ins: dict[tuple[Kind, ...], type[BaseException]] = {}


class CarriedFailure(NamedTuple):
    """A Failure in plain values."""

    kinds: tuple[Kind, ...]
    """The exception's class and its bases in method resolution order."""
    arguments: bytes
    attributes: dict[str, bytes]
    fault: tuple[str, ...]
    handler: str


def carried(failure: Failure) -> CarriedFailure:
    """Return a failure in plain values."""
    error = failure.error
    attributes = {name: _pickled(value) for name, value in vars(error).items()}
    return CarriedFailure(
        tuple((each.__module__, each.__qualname__) for each in type(error).__mro__[:-1]),
        _pickled(error.args) or b"",
        {name: data for name, data in attributes.items() if data is not None},
        astuple(failure.fault),
        failure.handler,
    )


def restored(carried_: CarriedFailure) -> Failure:
    """Return the Failure, with an exception of the same class or a stand-in."""
    arguments = _unpickled(carried_.arguments, ())
    kind = _class_of(carried_.kinds)
    error = _made(kind, arguments if isinstance(arguments, tuple) else ())
    for name, data in carried_.attributes.items():
        value = _unpickled(data, _NOTHING)
        if value is not _NOTHING:
            vars(error)[name] = value
    return Failure(error, Fault(*carried_.fault), carried_.handler)


_NOTHING = object()


def _made(kind: type[BaseException], arguments: Sequence[Any]) -> BaseException:
    """Create an exception without its constructor, whose parameters may differ from ``args``."""
    builtin = next(each for each in kind.__mro__ if each.__module__ == "builtins")
    for given in (arguments, ()):
        try:
            error: BaseException = builtin.__new__(kind, *given)
            error.args = tuple(arguments)
        except Exception:  # noqa: S112 - the next attempt needs less
            continue
        return error
    return Exception.__new__(Exception, *arguments)


def _class_of(kinds: tuple[Kind, ...]) -> type[BaseException]:
    found = _known(kinds[0])
    if found is not None:
        return found
    stand_in = _stand_ins.get(kinds)
    if stand_in is None:
        if len(_stand_ins) >= _KNOWN_STAND_INS:
            _stand_ins.clear()
        stand_in = _stand_ins[kinds] = _stand_in(kinds)
    return stand_in


def _stand_in(kinds: tuple[Kind, ...]) -> type[BaseException]:
    bases: list[type[BaseException]] = []
    for each in kinds[1:]:
        known = _known(each)
        if known is not None and not any(issubclass(base, known) for base in bases):
            bases.append(known)
    module, name = kinds[0]
    body = {"__module__": module, "__qualname__": name}
    try:
        return type(name.rpartition(".")[2], tuple(bases), body)
    except TypeError:  # incompatible bases
        return type(name.rpartition(".")[2], tuple(bases[:1] or [Exception]), body)


def _known(kind: Kind) -> type[BaseException] | None:
    """Return a class that this process has loaded; import nothing."""
    found: Any = sys.modules.get(kind[0])
    for part in kind[1].split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _pickled(value: Any) -> bytes | None:
    try:
        data = pickle.dumps(value)
        pickle.loads(data)  # noqa: S301 - our own data, read as the parent will read it
    except Exception:
        return None
    return data


def _unpickled(data: bytes, otherwise: Any) -> Any:
    try:
        return pickle.loads(data) if data else otherwise  # noqa: S301 - from our own child
    except Exception:
        return otherwise
