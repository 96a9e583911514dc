"""Where planted bugs are looked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.simulation.planted import FILE, Planted


@pytest.fixture
def planted(record_property: Callable[[str, object], None]) -> Planted:
    """Looks for bugs; tests/conftest.py prints new seeds at the end of the run."""
    return Planted(partial(record_property, FILE.name))
