"""The commands of ``window-consumer audit``."""
