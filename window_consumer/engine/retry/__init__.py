"""What follows a record's call: retries, copies, results and final outcomes."""
