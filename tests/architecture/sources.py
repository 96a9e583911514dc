"""The modules of the package as trees, which all tests of this folder share.

To parse them takes two seconds, and a process runs the whole folder (``tests/suite_plugin.py``).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import window_consumer

PACKAGE = Path(window_consumer.__file__).parent


@cache
def trees() -> Mapping[str, ast.Module]:
    """Return the tree of each module by its path in the package."""
    return {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text("utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }
