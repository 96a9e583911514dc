"""Commits: when a partition is committed, what the commit says, and where reading begins."""
