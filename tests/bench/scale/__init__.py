"""How the operator copes with thousands of services: the real process against a fake API server.

    export PYTHONPATH=tests:operator:images
    python -m bench.scale 3000 10000

It lets the operator bring up some services, copies them with all their children, starts the operator again, and
prints a row of docs/design/operator.md's table for each number of services: how long until every service was
reconciled and nothing waits, and what that and a while of idling took. It exits with 1 where a goal is missed.

`bench.scale.real` measures bursts on a real API server, next to a bare client that makes the same children (`floor`).
"""
