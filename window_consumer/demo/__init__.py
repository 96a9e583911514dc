"""The demo: an embedded broker, a shop that misbehaves, an independent checker."""
