"""The operator against a real API server and controllers, with simulated nodes."""
