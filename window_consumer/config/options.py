"""Attrs metadata: what a field of a configuration class declares about its key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, get_origin

import attrs
from attrs import frozen

from window_consumer.config.kinds import ValueKind
from window_consumer.config.problems import Problem

InDecorators = Literal["key", "lifted", "never"]
"""How decorators take a key: by its own name, also when it belongs to a section of the worker, or
not at all.
"""


@frozen
class Option:
    """Facts about a key besides its type and default."""

    meaning: str
    reason: str = ""
    """Why this is the default."""
    kind: ValueKind | None = None
    """None if the value is a section with keys of its own."""
    default: str | None = None
    """The default in words, if the value alone is unclear."""
    decorators: InDecorators = "key"
    secret: bool = False
    """Whether its value is a secret, which no output may contain."""


@frozen
class Section:
    """A section that a feature declares, at the top of the file or of each worker."""

    name: str
    kind: type[Any]
    """An attrs class; each field has a default and a description (``about``)."""
    meaning: str
    check: Callable[[Any, Collection[str]], Iterable[Problem]] = lambda _section, _given: ()
    """Returns conflicts between its keys; their paths begin below the section. The second argument
    is the names of the keys that are given.
    """
    works_alone: Callable[[Any], bool] = lambda _section: False
    """Returns whether its commands work without a worker."""
    workers: Callable[[Any], Iterable[Any]] | None = None
    """Returns a ``WorkerConfig`` for each worker that the section adds to the file's."""
    has_names: bool = False
    """Whether it is a mapping of names to sections of ``kind``, see ``Config.named``."""
    relations: Callable[[Any], Iterable[Problem]] = lambda _config: ()
    """Returns conflicts with other sections of a ``Config``; paths as in ``check``."""
    part_of: str = ""
    """The section whose commands also read this one."""
    handles: Callable[[Any], bool] = lambda _section: False
    """Returns whether the section replaces the handler of its worker."""
    written: Callable[[Any], Any] = lambda section: section
    """Returns the section as the file has it, without what was switched on implicitly."""
    decides: Callable[[Any], Mapping[str, Any]] = lambda _section: {}
    """Returns the keys of its worker that the section sets, with their values."""
    relations_in_worker: Callable[[Any, Collection[str]], Iterable[Problem]] = lambda _worker, _: ()
    """Returns conflicts with other keys of a ``WorkerConfig``; paths begin below the worker. The
    second argument is the names of the worker's keys that are given.
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
        """Return the names of the sections that are the handler of a ``WorkerConfig``."""
        return [each.name for each in self.worker if each.handles(worker.section(each.kind))]

    def decided(self, worker: Any) -> dict[str, Any]:
        """Return the keys of a ``WorkerConfig`` that its sections set."""
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
    """Return the sections of features that belong in a section."""
    places = (each.metadata.get("place") for each in attrs.fields(section))
    return next((getattr(sections, place) for place in places if place is not None), ())


def options(
    section: type, sections: Sections = NO_SECTIONS
) -> dict[str, tuple[attrs.Attribute[Any], Option]]:
    """Return the keys of a section with their fields, in the order of the class.

    A field whose key is a Python keyword ends with an underscore.
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
    """Return the keys of a section, each with its class if it is a section, else with None."""
    return {
        name: attribute.type if attribute.type is not None and attrs.has(attribute.type) else None
        for name, (attribute, _) in options(section, sections).items()
    }


ANY_NAME: Final = "NAME"
"""Stands for any name in the path of a secret key."""


def secret_keys(sections: Sections) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the secret keys of features; of a mapping, those of its values."""
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
