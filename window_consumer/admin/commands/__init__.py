"""Commands that use running workers: ``top``, ``doctor``, ``skip`` and ``dead-letter``."""
