"""Checks that rows of history are unchanged since they were written.

Each row of a sealed table has a hash over all its columns, which the database sets at insert
(tenants/migrations/0001_guards.sql) and recomputes here. The bytes of rounds are checked by the
hashes of their rounds: `scheduling.selectors.rounds.stored`.
"""

from billing.checks.base import SHOWN, CheckReport
from tenants.sql import fetch_rows

SEALED = (
    "billing_entry",
    "billing_loggedtransfer",
    "billing_postedprice",
    "billing_transfer",
    "billing_usageline",
    "billing_usageshare",
    "scheduling_jobanswer",
    "scheduling_leaseevent",
    "scheduling_leaseterm",
    "scheduling_pseudonymkey",
    "scheduling_round",
    "scheduling_verification",
    "tenants_auditrecord",
    "tenants_logentry",
    "tenants_logkey",
    "tenants_lognode",
    "tenants_transparencylog",
)


def rows_as_sealed() -> CheckReport:
    """Check that every row of history still has the hash of its insert."""
    report = CheckReport()
    for table in SEALED:
        ((checked, wrong, ids),) = fetch_rows(
            f"""
            SELECT count(*), count(*) FILTER (WHERE {_CHANGED.format(table)}),
                   (array_agg(t.id::text) FILTER (WHERE {_CHANGED.format(table)}))[1:{SHOWN}]
            FROM {table} t
            """  # noqa: S608 - names are constants
        )
        report.checked += checked
        for id_ in ids or ():
            report.wrong(f"{table} {id_}: it was changed after it was written")
        report.hidden += max(0, wrong - SHOWN)
    return report


_CHANGED = "t.seal IS DISTINCT FROM {0}_seal(t)"
