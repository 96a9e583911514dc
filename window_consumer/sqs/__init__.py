"""Queues that clients of Amazon SQS read and write: each worker with `pull` is one."""
