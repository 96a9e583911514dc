"""Pages of the site besides docs/*.md; MkDocs calls these functions, see mkdocs.yml.

The home page is the README's first screen and the list of all pages. Files at the top of the tree
become pages, folders get a list of theirs, and links to code lead to the repository. Its address
is that of the wheel's metadata; without one such a link becomes its text.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from hatch_build import VARIABLE, origin, web_address

ROOT = Path(__file__).parents[1]

HOME = "README.md"
TOP_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LISTS = {"docs/decisions": "decisions/index.md", "docs/lab": "lab/index.md"}

_FENCE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_OUTSIDE = re.compile(r"#|[a-z]+:")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/."""
    for path, uri in TOP_PAGES.items():
        text = (ROOT / path).read_text("utf-8")
        files.append(File.generated(config, uri, content=text))
    for path, uri in LISTS.items():
        files.append(File.generated(config, uri, content=listing(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to their targets on the site."""
    del config
    uri = page.file.src_uri
    base = web_address(os.environ.get(VARIABLE, "") or origin(ROOT))

    def at(source: str) -> Callable[[str], str | None]:
        return lambda link: address(link, source, uri, base, files)

    if uri == HOME:
        return led(first_screen(), at("README.md")) + led(deeper(markdown), at("docs/README.md"))
    sources = {uri: path for path, uri in TOP_PAGES.items()}
    return led(markdown, at(sources.get(uri, f"docs/{uri}")))


def first_screen() -> str:
    """Return the README up to what a checkout can run."""
    return (ROOT / "README.md").read_text("utf-8").partition("## Try it\n")[0]


def deeper(markdown: str) -> str:
    """Return a page with its headings a level lower."""
    return re.sub(r"^#", "##", markdown, flags=re.MULTILINE)


def listing(folder: Path) -> str:
    """Return a page that lists a folder's pages by their titles."""
    pages = sorted(folder.glob("*.md"))
    titles = [page.read_text("utf-8").partition("\n")[0].lstrip("# ") for page in pages]
    items = [f"- [{title}]({page.name})\n" for page, title in zip(pages, titles, strict=True)]
    return f"# {folder.name.capitalize()}\n\n{''.join(items)}"


def led(markdown: str, address_of: Callable[[str], str | None]) -> str:
    """Return the text with the addresses of its links, code blocks left alone.

    A link whose address is None becomes its text.
    """

    def replaced(found: re.Match[str]) -> str:
        mark, label, link = found.groups()
        if _OUTSIDE.match(link):
            return f"{mark}[{led(label, address_of)}]({link})"
        new = address_of(link)
        return label if new is None else f"{mark}[{led(label, address_of)}]({new})"

    parts = _FENCE.split(markdown)
    return "".join(each if at % 2 else _LINK.sub(replaced, each) for at, each in enumerate(parts))


def address(link: str, source: str, uri: str, base: str, files: Files) -> str | None:
    """Return where a link of a file in the tree leads from the page ``uri``.

    None, if its target lies outside the site and the repository's address is unknown.
    """
    path, _, anchor = link.partition("#")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    inside = TOP_PAGES.get(target) or LISTS.get(target) or posixpath.relpath(target, "docs")
    after = f"#{anchor}" if anchor else ""
    file = files.get_file_from_path(inside)
    if file and file.inclusion is not InclusionLevel.EXCLUDED:
        return posixpath.relpath(inside, posixpath.dirname(uri) or ".") + after
    if not (ROOT / target).exists():
        return link  # MkDocs reports it
    kind = "tree" if (ROOT / target).is_dir() else "blob"
    return f"{base}/{kind}/HEAD/{target}{after}" if base else None
