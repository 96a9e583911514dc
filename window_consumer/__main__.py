"""``python -m window_consumer`` is ``window-consumer``."""

from __future__ import annotations

from window_consumer.cli.main import main

if __name__ == "__main__":
    main()
