"""Calling records again: by copies in one group's entry topic, or a stopped group's offsets."""
