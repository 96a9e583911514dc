"""The commands of ``window-consumer dlq``, one module each."""
