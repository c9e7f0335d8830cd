"""The engine: it reads a snapshot, gets a decision, applies it, and calls an executor.

Order of a round: fence -> dispatch leftover intents -> feed -> reconcile -> snapshot -> decide ->
apply (one transaction) -> dispatch. Only `apply` (with `write` and `grants`), `observe` and
`revoke` write leases, terms and events.
"""
