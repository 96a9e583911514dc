from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.push.service import Service


@pytest.fixture
def service() -> Iterator[Service]:
    """A service that takes everything."""
    with Service() as service:
        yield service
