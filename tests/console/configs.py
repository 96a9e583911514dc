"""Configurations and addresses for the tests of the console."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.admin.admin import Asking
from tests.kernel import FEATURES
from window_consumer.admin.config import AdminConfig
from window_consumer.admin.server import serving
from window_consumer.config import LoadedConfig, load
from window_consumer.plan.feature import PageContext, Pages


def loaded(directory: Path, config: Mapping[str, Any]) -> LoadedConfig:
    """Write a configuration and load it."""
    file = directory / "workers.yaml"
    file.write_text(json.dumps(config))
    return load(file, sections=FEATURES.sections, without_handlers=True)


def context(directory: Path, config: Mapping[str, Any]) -> PageContext:
    """Return the context of a configuration's pages."""
    return PageContext(loaded(directory, config), FEATURES.copy_writer, FEATURES.value_decoder)


@contextmanager
def console(pages: Mapping[str, Pages], **admin: Any) -> Iterator[Asking]:
    """Serve pages without windows."""
    config = AdminConfig(listen="127.0.0.1:0", **admin)
    with serving(None, config, Path(), pages) as port:
        yield Asking(port)
