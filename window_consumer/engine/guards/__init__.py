"""What holds records back: breaker, stalls, suspects, memory and users."""
