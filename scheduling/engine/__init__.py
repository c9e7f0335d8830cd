"""The engine: reads a snapshot, gets a decision from the policy, applies it, calls the executor.

Order of a round: fence -> dispatch leftover intents -> feed -> reconcile -> snapshot -> decide ->
apply (one transaction) -> dispatch. Only `apply` (with `write` and `grants`), `observe` and
`revoke` write leases, terms and events.
"""
