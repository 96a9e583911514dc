"""Golden texts: what users read, word for word, in ``golden/<test file>.txt`` beside the test file.

A test that requests ``golden`` compares texts with those of its section, in order. After rewording,
``python -m pytest --golden FILE`` rewrites them: review the difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import Self, TypeVar

import pytest
from attrs import define, field, frozen

E = TypeVar("E", bound=BaseException)

ROOT = Path(__file__).parents[1]

VARIES = (
    (re.compile(r"(\w+\.py):\d+"), r"\1:{line}"),
    (re.compile(r"\b(127\.0\.0\.1|localhost):\d{4,5}\b"), r"\1:{port}"),
    (re.compile(re.escape(gettempdir()) + r"/\w{11}\b"), "{directory}"),
    (re.compile(r"\b0x[0-9a-f]{6,}\b"), "{address}"),
    (re.compile(r"\[(WC\d+): \S+errors\.md#\w+\]"), r"[\1]"),  # the documentation may move
)
"""What differs from run to run, and its placeholder in the files."""

_SECTION = re.compile(r"^=== (.+)\n", re.MULTILINE)
_NEXT = "\n---\n"


@frozen
class GoldenFile:
    """The texts of one test file, by the names of its tests."""

    path: Path

    @classmethod
    def of(cls, test_file: Path) -> Self:
        return cls(test_file.parent / "golden" / f"{test_file.stem}.txt")

    def read(self) -> dict[str, list[str]]:
        if not self.path.exists():
            return {}
        _, *parts = _SECTION.split(self.path.read_text(encoding="utf-8"))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return {name: text.removesuffix("\n").split(_NEXT) for name, text in pairs}

    def write(self, texts: Mapping[str, list[str]]) -> None:
        self.path.parent.mkdir(exist_ok=True)
        sections = (f"=== {name}\n{_NEXT.join(texts[name])}\n" for name in sorted(texts))
        self.path.write_text("".join(sections), encoding="utf-8")


@define
class Golden:
    """The golden texts of one test."""

    file: GoldenFile
    test: str
    writes: bool
    hidden: dict[str, str]
    """Names in the files for texts that differ from run to run."""
    _given: list[str] = field(factory=list)

    def __call__(self, text: object, **hidden: object) -> None:
        """Compare a text with the next one; ``hidden`` names what differs from run to run."""
        given = str(text)
        for name, value in {**hidden, **self.hidden}.items():
            given = given.replace(str(value), f"{{{name}}}")
        for pattern, replaced in VARIES:
            given = pattern.sub(replaced, given)
        given = given.rstrip("\n")
        self._given.append(given)
        if not self.writes:
            expected = self.file.read().get(self.test, [])[len(self._given) - 1 :][:1]
            assert [given] == expected, f"not what {self.file.path} has; see tests/golden_texts.py"

    @contextmanager
    def raises(self, error: type[E] | tuple[type[E], ...]) -> Iterator[pytest.ExceptionInfo[E]]:
        """As ``pytest.raises``, and compare the message."""
        with pytest.raises(error) as caught:
            yield caught
        self(caught.value)

    def finish(self) -> None:
        """Fail if the file has more texts than were compared; write them if asked to."""
        texts = self.file.read()
        if not self.writes:
            assert texts.get(self.test, []) == self._given
            return
        texts.pop(self.test, None)
        if self._given:
            texts[self.test] = self._given
        self.file.write(texts)


def golden_of(request: pytest.FixtureRequest) -> Golden:
    """Return the texts of the requesting test."""
    hidden = {"root": str(ROOT)}
    if "tmp_path" in request.fixturenames:
        hidden = {"tmp_path": str(request.getfixturevalue("tmp_path")), **hidden}
    writes = bool(request.config.getoption("--golden"))
    return Golden(GoldenFile.of(request.path), request.node.name, writes, hidden)
