"""Commands that look at running workers: ``top``, ``doctor``, ``skip`` and ``dead-letter``."""
