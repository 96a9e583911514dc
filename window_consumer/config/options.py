"""Attrs metadata: what a field of the configuration's classes declares about its key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, get_origin

import attrs
from attrs import frozen

from window_consumer.config.kinds import ValueKind
from window_consumer.config.problems import Problem

InDecorators = Literal["key", "lifted", "never"]
"""Whether decorators take a key by its name: as a worker's key, although it belongs to a section of
the worker, or not at all.
"""


@frozen
class Option:
    """What is known about a key beside its type and default."""

    meaning: str
    reason: str = ""
    """Why this is the default."""
    kind: ValueKind | None = None
    """None if the value is a section with keys of its own."""
    default: str | None = None
    """The default in words, if the value is not clear enough."""
    decorators: InDecorators = "key"
    secret: bool = False
    """Whether its value never appears in any output."""


@frozen
class Section:
    """A section that a feature declares, at the top of the file or of each worker."""

    name: str
    kind: type[Any]
    """An attrs class, all fields of which have a default and are described with ``about``."""
    meaning: str
    check: Callable[[Any, Collection[str]], Iterable[Problem]] = lambda _section, _given: ()
    """Returns conflicts between its keys; their paths begin below the section. Also gets the names
    of the keys that are given.
    """
    works_alone: Callable[[Any], bool] = lambda _section: False
    """Returns whether its commands have something to do although there is no worker."""
    workers: Callable[[Any], Iterable[Any]] | None = None
    """Returns the ``WorkerConfig`` of each worker that it adds to those of the file."""
    has_names: bool = False
    """Whether it is a mapping of names to sections of ``kind``, see ``Config.named``."""
    relations: Callable[[Any], Iterable[Problem]] = lambda _config: ()
    """Returns conflicts with other sections of a ``Config``; paths as in ``check``."""
    part_of: str = ""
    """The section whose commands read this one, too."""
    handles: Callable[[Any], bool] = lambda _section: False
    """Returns whether a worker with such a section needs no handler of the application."""
    written: Callable[[Any], Any] = lambda section: section
    """Returns a section of a worker that the file has, for those that it switches on by itself."""
    decides: Callable[[Any], Mapping[str, Any]] = lambda _section: {}
    """Returns keys of its worker with the values that follow from such a section."""
    relations_in_worker: Callable[[Any, Collection[str]], Iterable[Problem]] = lambda _worker, _: ()
    """Returns conflicts with other keys of a ``WorkerConfig``; paths begin below the worker. Also
    gets the names of the worker's keys that are given.
    """


@frozen
class Sections:
    """The sections that features declare, by the place where they stand.

    Those of workers have a name, a class, a meaning, a check, ``handles``, ``written``,
    ``decides`` and ``relations_in_worker``; the rest is for the file's.
    """

    file: tuple[Section, ...] = ()
    worker: tuple[Section, ...] = ()

    def handling(self, worker: Any) -> list[str]:
        """Return the names of those sections of a ``WorkerConfig`` that are its handler."""
        return [each.name for each in self.worker if each.handles(worker.section(each.kind))]

    def decided(self, worker: Any) -> dict[str, Any]:
        """Return the keys of a ``WorkerConfig`` that follow from its sections."""
        each_decides = (each.decides(worker.section(each.kind)) for each in self.worker)
        return {key: value for decided in each_decides for key, value in decided.items()}


NO_SECTIONS: Final = Sections()


def about(
    meaning: str,
    *,
    kind: ValueKind | None = None,
    reason: str = "",
    default: str | None = None,
    decorators: InDecorators = "key",
    secret: bool = False,
) -> dict[str, Option]:
    """Return the metadata of a field that is a key of the file."""
    return {"option": Option(meaning, reason, kind, default, decorators, secret)}


def declared_by_features(place: Literal["file", "worker"]) -> dict[str, str]:
    """Return the metadata of the field with the sections of features, by their classes.

    They stand between the keys of the fields before and after it.
    """
    return {"place": place}


def feature_sections(section: type, sections: Sections) -> tuple[Section, ...]:
    """Return those sections of features that belong into a section."""
    places = (each.metadata.get("place") for each in attrs.fields(section))
    return next((getattr(sections, place) for place in places if place is not None), ())


def options(
    section: type, sections: Sections = NO_SECTIONS
) -> dict[str, tuple[attrs.Attribute[Any], Option]]:
    """Return the keys of a section with their fields, in the order of the class.

    A field whose key is a word of Python has an underscore at its end.
    """
    found: dict[str, tuple[attrs.Attribute[Any], Option]] = {}
    for attribute in attrs.fields(attrs.resolve_types(section)):
        if "option" in attribute.metadata:
            found[attribute.name.rstrip("_")] = attribute, attribute.metadata["option"]
        elif "place" in attribute.metadata:
            for each in feature_sections(section, sections):
                option = Option(each.meaning, decorators="never")
                found[each.name] = attribute.evolve(name=each.name, type=each.kind), option
    return found


def subsections(section: type, sections: Sections = NO_SECTIONS) -> dict[str, type | None]:
    """Return the keys of a section, with the class of each that is a section itself, else None."""
    return {
        name: attribute.type if attribute.type is not None and attrs.has(attribute.type) else None
        for name, (attribute, _) in options(section, sections).items()
    }


ANY_NAME: Final = "NAME"
"""Stands for any name in the path of a secret key."""


def secret_keys(sections: Sections) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the secret keys of features; a mapping's are those of its values."""
    for section in sections.file:
        yield from _secret_keys((section.name,), section.kind)
    for section in sections.worker:
        yield from _secret_keys(("workers", ANY_NAME, section.name), section.kind)


def _secret_keys(path: tuple[str, ...], section: type) -> Iterator[tuple[str, ...]]:
    for name, (attribute, option) in options(section).items():
        kind = attribute.type
        if kind is not None and attrs.has(kind):
            yield from _secret_keys((*path, name), kind)
        if option.secret:
            yield (*path, name, ANY_NAME) if get_origin(kind) is Mapping else (*path, name)
        if option.kind is not None and option.kind.hidden_key:
            yield *path, name, ANY_NAME, option.kind.hidden_key
