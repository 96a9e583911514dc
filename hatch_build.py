"""The project's addresses in the wheel's metadata: ``[project.urls]``, and the README's links.

A checkout does not know its public address before it has one, so none is written down. The build
takes WINDOW_CONSUMER_REPOSITORY, else the remote ``origin`` of the checkout; an sdist keeps what it
was built with. Without any of these a wheel has no addresses, rather than wrong ones.

A package index shows the README without the files beside it, so its links become absolute.
"""

from __future__ import annotations

import os
import re
import subprocess
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "WINDOW_CONSUMER_REPOSITORY"
PAGES = {
    "Homepage": "",
    "Source": "",
    "Documentation": "/blob/HEAD/docs/README.md",
    "Changelog": "/blob/HEAD/CHANGELOG.md",
    "Issues": "/issues",
}

README = "README.md"

_REMOTE = re.compile(
    r"(?:https://(?:[^@/]+@)?|ssh://(?:[^@/]+@)?|[\w.-]+@)"
    r"(?P<host>[\w-]+(?:\.[\w-]+)+)(?::\d+)?[:/](?P<path>[\w./~-]+?)(?:\.git)?/?"
)
_RELATIVE_LINK = re.compile(
    r"(?P<code>^```.*?^```$)|(?P<before>(?P<picture>!?)\[[^\]]*\]\()(?!https?:|mailto:|#)(?P<path>[^)\s]+)",
    re.MULTILINE | re.DOTALL,
)


class Addresses(MetadataHookInterface):
    """Adds the addresses to the metadata, if they are known."""

    def update(self, metadata: dict[str, Any]) -> None:
        """See MetadataHookInterface."""
        root = Path(self.root)
        if base := web_address(os.environ.get(VARIABLE, "") or origin(root)):
            metadata["urls"] = {label: base + path for label, path in PAGES.items()}
        else:
            metadata["urls"] = kept(root / "PKG-INFO")
        text = (root / README).read_text("utf-8")
        if source := metadata["urls"].get("Source"):
            text = with_absolute_links(text, source)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def web_address(remote: str) -> str:
    """Return the page of a repository; empty for a path, a host without a domain, and nonsense."""
    found = _REMOTE.fullmatch(remote.strip())
    return f"https://{found['host']}/{found['path']}" if found else ""


def origin(root: Path) -> str:
    """Return the remote that the checkout was cloned from, if it has one."""
    if not (root / ".git").exists():
        return ""  # an sdist may lie within the checkout of something else
    command = ["git", "-C", str(root), "remote", "get-url", "origin"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603 - fixed words, and our own directory
    except FileNotFoundError:  # no git
        return ""


def kept(info: Path) -> dict[str, str]:
    """Return the addresses that an sdist was built with."""
    if not info.is_file():
        return {}
    lines = HeaderParser().parsestr(info.read_text("utf-8")).get_all("Project-URL", [])
    return dict(line.split(", ", 1) for line in lines)


def with_absolute_links(text: str, repository: str) -> str:
    """Return Markdown whose links and pictures work on any site; code blocks stay."""

    def absolute(found: re.Match[str]) -> str:
        if found["code"] is not None:
            return found["code"]
        kind = "raw" if found["picture"] else "blob"
        return f"{found['before']}{repository}/{kind}/HEAD/{found['path']}"

    return _RELATIVE_LINK.sub(absolute, text)
