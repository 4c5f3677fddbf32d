"""Requests and errors of the executor."""
