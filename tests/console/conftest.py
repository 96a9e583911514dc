"""The browser of the other pages."""

from tests.admin.conftest import browser

__all__ = ["browser"]
