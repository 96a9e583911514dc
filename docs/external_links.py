"""Requests each link of the pages to other sites: `make links`.

It needs a network, so no test runs it; tests/docs/test_external_links.py checks the links' form.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

ROOT: Final = Path(__file__).parents[1]
_LINK: Final = re.compile(r"\]\((https?:[^)\s]+)\)")
_TIMEOUT_S: Final = 20.0
_AT_ONCE: Final = 4
_REFUSALS: Final = {HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS}
"""Answers of sites that turn programs away: the page may be there."""


def external_links() -> dict[str, str]:
    """Return each link, without its fragment, and the first page that has it."""
    found: dict[str, str] = {}
    for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]):
        for link in _LINK.findall(page.read_text("utf-8")):
            found.setdefault(link.partition("#")[0], str(page.relative_to(ROOT)))
    return found


def problem_of(link: str) -> str | None:
    """Return why a link leads nowhere; None if it does not."""
    request = Request(link, headers={"User-Agent": "Mozilla/5.0 (link check)"})  # noqa: S310 - https, see the test
    try:
        with urlopen(request, timeout=_TIMEOUT_S):  # noqa: S310 - as above
            return None
    except HTTPError as error:
        return None if error.code in _REFUSALS else f"answers {error.code}"
    except (URLError, TimeoutError, ConnectionError) as error:
        return str(getattr(error, "reason", error))


def broken(links: Iterable[str]) -> dict[str, str]:
    """Return the links that lead nowhere, with the reason."""
    asked = list(links)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = zip(asked, pool.map(problem_of, asked), strict=True)
        return {link: problem for link, problem in answers if problem is not None}


if __name__ == "__main__":
    PAGES = external_links()
    BROKEN = broken(PAGES)
    for each, why in BROKEN.items():
        sys.stderr.write(f"{PAGES[each]}: {each}: {why}\n")
    sys.stdout.write(f"{len(PAGES)} links, {len(BROKEN)} broken\n")
    sys.exit(1 if BROKEN else 0)
