from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from window_consumer.app.features import FEATURES
from window_consumer.config import LoadedConfig, load
from window_consumer.config.cores import usable_cores
from window_consumer.model.errors import ConfigError, WrongKey


class Refusal(str):
    """The message of a refused configuration, and the problem of each key."""

    __slots__ = ("wrong",)
    wrong: tuple[WrongKey, ...]

    @classmethod
    def of(cls, error: ConfigError) -> Refusal:
        refusal = cls(error)
        refusal.wrong = error.wrong
        return refusal


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LoadedConfig]:
    """Load a text as workers.yaml of the current directory, without any environment variable."""
    monkeypatch.chdir(tmp_path)

    def load_text(
        text: str,
        *overrides: str,
        handlers: Mapping[str, Mapping[str, Any]] | None = None,
        environ: Mapping[str, str] | None = None,
        cores: Callable[[], int] = usable_cores,
    ) -> LoadedConfig:
        Path("workers.yaml").write_text(text, encoding="utf-8")
        return load(
            Path("workers.yaml"),
            handlers or {},
            overrides,
            environ or {},
            sections=FEATURES.sections,
            cores=cores,
        )

    return load_text


@pytest.fixture
def refused(loaded: Callable[..., LoadedConfig]) -> Callable[..., Refusal]:
    """Load a text that must be refused and return the message."""

    def message(*arguments: str, **options: Any) -> Refusal:
        with pytest.raises(ConfigError) as caught:
            loaded(*arguments, **options)
        return Refusal.of(caught.value)

    return message


@pytest.fixture
def worker_text() -> Callable[..., str]:
    """Write a configuration of one sound worker and further lines for it."""

    def text(*lines: str, kafka: Sequence[str] = ()) -> str:
        return "\n".join(
            (
                "kafka:",
                "  bootstrap.servers: h:1",
                *(f"  {line}" for line in kafka),
                "workers:",
                "  charge:",
                "    topics: [orders]",
                "    group: shop",
                *(f"    {line}" for line in lines),
            )
        )

    return text
