"""The message trace: what happened to each record, recorded step by step for later queries."""
