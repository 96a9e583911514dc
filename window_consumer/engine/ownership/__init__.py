"""Partitions come and go: each assignment begins an epoch, each revocation ends one."""
