"""`tandem metrics run`: reads the services' pods and serves what autoscalers and the operator ask for.

Only the command line imports it.
"""
