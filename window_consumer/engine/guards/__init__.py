"""Everything that holds records back: breaker, stalls, suspects, memory and users."""
