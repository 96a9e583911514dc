"""``window-consumer delay`` and its commands."""
