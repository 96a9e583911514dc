"""The simulator as a command: ``python -m window_consumer.testing.simulator --seeds 0..2000``."""

from __future__ import annotations

import sys

from window_consumer.simulator.simulator import main

if __name__ == "__main__":
    sys.exit(main())
