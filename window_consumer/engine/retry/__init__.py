"""What becomes of a record after its call: retries, copies, results and final outcomes."""
