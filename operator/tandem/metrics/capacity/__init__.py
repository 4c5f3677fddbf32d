"""What a replica can do at the acceptance seen, how many replicas the load asks for, what speculation is worth."""
