"""A real browser: Debian's Chromium. Without it tests of pages are skipped, except in CI."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium.

    It runs an event loop on this thread, which later tests must not find.
    """
    program = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("CI has to have a Chromium: apt-get install chromium")
        pytest.skip("no Chromium: apt-get install chromium")
    expect.set_options(timeout=60_000)  # a busy machine draws late
    with sync_playwright() as playwright:
        # The sandbox does not work for root, as in a container.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        started = playwright.chromium.launch(executable_path=program, args=arguments)
        yield started
        started.close()
