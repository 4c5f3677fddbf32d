"""The whole operator against an API server in memory, in virtual time: hours of faults in seconds.

Real: `tandem.process.operator.Operator` with its workers, queue, watches of children, comparisons and Lease.
Simulated: the API server (`api`), Kubernetes' controllers and kubelet (`controllers`), the clocks (`clock`), and in
kopf's place a watch of services like those of children (`process`).
"""
