"""What starts next of the calls that wait: a file a strategy, each pure."""
