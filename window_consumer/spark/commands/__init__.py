"""The commands of ``window-consumer pipeline``, one module each."""
