"""The engine: reads a snapshot, has it decided, applies it, and talks to an executor.

Order of a round: fence -> dispatch what was left -> feed -> reconcile -> snapshot -> decide ->
apply (one transaction) -> dispatch. `apply` is the only writer of leases, terms and events.
"""
