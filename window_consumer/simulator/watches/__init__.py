"""What the simulator checks while a schedule runs, one subject each."""
