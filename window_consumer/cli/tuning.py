"""Settings of the interpreter that suit a consumer; only the command line changes them."""

from __future__ import annotations

import gc
import sys

SWITCH_INTERVAL_S = 0.005
GC_THRESHOLD = 50_000


def tune(switch_interval_s: float, gc_threshold: int) -> None:
    """Set how long a thread keeps the interpreter, and how many new objects start a collection.

    A worker makes some thousand objects at a time and lets go of them in order: collecting after
    every 700 finds nothing and looks at all that is in the windows.
    """
    sys.setswitchinterval(switch_interval_s)
    if gc_threshold:
        gc.set_threshold(gc_threshold, 20, 50)
        gc.freeze()
