"""What the circuit breaker consists of: evidence, searches, samples, departures."""
