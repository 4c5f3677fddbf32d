"""The page for people, at `/ui/` of the metrics server: services that the user may read, and a playground."""
