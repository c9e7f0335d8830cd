"""The engine: reads a snapshot, has it decided, applies it, and talks to an executor.

Order of a round: fence -> dispatch what was left -> feed -> reconcile -> snapshot -> decide ->
apply (one transaction) -> dispatch. Leases, terms and events are written by `apply` (with `write`
and `grants`), `observe` and `revoke` alone.
"""
