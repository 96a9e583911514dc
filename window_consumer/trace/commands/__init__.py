"""The commands of ``window-consumer trace``, one module each."""
