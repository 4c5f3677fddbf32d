"""`tandem doctor`: whether a cluster, and a service in it, have what Tandem needs.

`read` asks for objects, `cluster` and `service` judge them, pure; `report` shows what they find.
"""
