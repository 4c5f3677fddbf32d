"""Results and errors of requests."""
