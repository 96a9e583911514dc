"""Run ``window-consumer`` as ``python -m window_consumer``."""

from __future__ import annotations

from window_consumer.cli.main import main

if __name__ == "__main__":
    main()
