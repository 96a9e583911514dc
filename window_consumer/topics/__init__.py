"""The topics that workers write to: found, checked, created and planned."""
