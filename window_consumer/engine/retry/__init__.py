"""What happens to a record after its call: retries, copies, results and final outcomes."""
