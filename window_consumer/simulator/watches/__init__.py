"""The simulator's checks while a schedule runs, one subject each."""
