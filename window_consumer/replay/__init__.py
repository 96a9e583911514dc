"""Calling records once more: copies for one group's entry topic, and a stopped group's offsets."""
