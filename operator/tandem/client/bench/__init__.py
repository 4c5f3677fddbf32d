"""`tandem bench`: what speculation is worth, measured on a service with its user's own prompts."""
