from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.schema_registry.registry import Registry


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A registry without schemas."""
    with Registry() as registry:
        yield registry
