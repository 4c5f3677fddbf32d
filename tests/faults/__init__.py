"""The fault suite: an operator on a real API server, with one fault at a time between them."""
