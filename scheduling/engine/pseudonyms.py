"""The names of a round's rows in its bundle: pseudonyms that are valid for the pool's day.

The database maps the round's ids to tenants. If a row (for example a job type) has been deleted,
its pseudonym is made from its number and the secret of the day. Readers cannot compute it without
the secret.
"""

import hmac
import secrets
from collections.abc import Collection, Mapping
from datetime import date
from functools import cache, partial

from evenshare_core.disclosure.bundle import Naming, RoundIds
from evenshare_core.disclosure.pseudonyms import (
    job_name,
    lease_name,
    profile_name,
    tenant_key,
    tenant_name,
)
from scheduling.models import Job, Lease, Profile, PseudonymKey

KEY_BYTES = 32
NAME_BYTES = 8  # as in evenshare_core.disclosure.pseudonyms


def day_key(pool_id: int, day: date) -> bytes:
    """Return the key of a pool's day (UTC, in pool time); create the key for the day's first round.

    The caller holds the lock of the pool's sealing.
    """
    row, _ = PseudonymKey.objects.get_or_create(
        pool_id=pool_id, day=day, defaults={"secret": secrets.token_bytes(KEY_BYTES)}
    )
    return bytes(row.secret)


def name_rows(secret: bytes, ids: RoundIds) -> Naming:
    """Return the pseudonyms of all rows of a round under the key of its day, in three queries."""
    key_of = cache(partial(tenant_key, secret))
    jobs = Job.objects.filter(pk__in=ids.jobs).values_list("id", "tenant_id", "uid")
    leases = Lease.objects.filter(pk__in=ids.leases).values_list("id", "tenant_id")
    profiles = Profile.objects.filter(pk__in=ids.profiles).values_list("id", "tenant_id", "name")
    job_names = {id_: job_name(key_of(tenant), uid.hex) for id_, tenant, uid in jobs}
    lease_names = {id_: lease_name(key_of(tenant), id_) for id_, tenant in leases}
    profile_names = {id_: profile_name(key_of(tenant), name) for id_, tenant, name in profiles}
    return Naming(
        tenants={tenant: tenant_name(key_of(tenant)) for tenant in ids.tenants},
        jobs=_all_named(secret, "job", ids.jobs, job_names),
        leases=_all_named(secret, "lease", ids.leases, lease_names),
        profiles=_all_named(secret, "profile", ids.profiles, profile_names),
    )


def _all_named(
    secret: bytes, kind: str, ids: Collection[int], names: Mapping[int, str]
) -> dict[int, str]:
    return {id_: names.get(id_) or _name_of_gone(secret, kind, id_) for id_ in ids}


def _name_of_gone(secret: bytes, kind: str, id_: int) -> str:
    return hmac.digest(secret, f"gone {kind}:{id_}".encode(), "sha256")[:NAME_BYTES].hex()
