"""What the README's pictures share: an SVG that follows the reader's light or dark system.

A picture that is embedded as an image cannot see the page's theme, only the preference of the
reader's system. It loads nothing: no fonts and no scripts.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

_STYLE = """
  text { font-family: system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; }
  .page { fill: #ffffff; }
  .title { font-size: 20px; font-weight: 600; }
  .label { fill: #57606a; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; }
    .page { fill: #0d1117; }
    .label { fill: #9198a1; }
  }
"""


def document(size: tuple[int, int], title: str, style: str, elements: Iterable[str]) -> str:
    """Return an SVG of a size in pixels; ``title`` is for screen readers.

    The picture scales: on a narrow page it is as wide as the page.
    """
    width, height = size
    sized = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {sized} role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}{style}</style>",
            f'<rect class="page" width="{width}" height="{height}" rx="6"/>',
            *elements,
            "</svg>\n",
        ]
    )


def text(x: float, y: float, said: str, kind: str) -> str:
    """Return a text of a class, its baseline at ``y``."""
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}">{escape(said)}</text>'
