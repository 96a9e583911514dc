"""The topics that an application reads and writes: found, checked, and created where allowed."""
