"""The message trace: what happened to each record at each step, for those who ask later."""
