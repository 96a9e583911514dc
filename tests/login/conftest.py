from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.login.token_server import TokenServer, granting, serving


@pytest.fixture
def token_server() -> Iterator[TokenServer]:
    """A server that grants tokens of ten minutes to every client, until a test changes that."""
    with serving(granting()) as server:
        yield server
