"""`tandem metrics run`: scrapes the services' pods and serves what autoscalers and the operator ask for."""
