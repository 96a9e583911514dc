"""Half a pair of surrogates: texts of Python and JSON may hold one, and no UTF-8 can.

Whoever cuts a text of UTF-16 in the middle of an emoji leaves one behind. It must not stop what
writes texts to Kafka, to tables or to a terminal.
"""

from __future__ import annotations


def escaped(text: str) -> str:
    """Return a text that can be encoded; half a pair stays as the JSON that says it."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
