"""An operator's changes to a pool's executor: accepted losses and options."""

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _

from scheduling.engine.executors.base import (
    ExecutorTraits,
    executor_traits,
    missing_executor,
)
from scheduling.engine.executors.pool_options import FIELD, check_options
from scheduling.models import ExecutorHealth, Lease, Pool
from scheduling.selectors.operate.losses import name_of
from scheduling.selectors.pools.executors import name_of_options
from tenants.audit import Actor, changed, write_audit
from tenants.input.errors import CONFLICT, FieldErrors, invalid
from tenants.language import gettext_noop, plural
from tenants.operator_transaction import operation

NOTHING_FROZEN = gettext_noop("This pool has no missing leases to accept.")
TOKENS_MAX = 200  # the maximum number of leases that one audit record names
OTHERS_BY_NOW = gettext_noop(
    "The set of missing leases has changed ({now} now): check again, then accept."
)

ON_HOST = gettext_noop(
    "This option is a program, a file or a system user. Set it in a shell on the machine:"
    " manage.py set_executor_options {pool} FILE --user NAME."
)
LAUNCHED_BY = gettext_noop(
    "{leases} launched by the present {option} and would no longer be found: drain the nodes"
    " first. If the cluster stays the same, change it at once in a shell there: manage.py"
    " set_executor_options {pool} FILE --user NAME --same-cluster."
)
CHANGED_SINCE = gettext_noop(
    "The options were changed meanwhile: compare with the saved options, then save again."
)


def accept_losses(
    *, actor: Actor, pool: Pool, reason: str = "", seen: str | None = None
) -> tuple[int, bool]:
    """Accept that the leases which the pool's executor does not list are lost.

    Return how many, and whether they were not accepted before.

    The next round ends them as lost, and their jobs wait again. A lease that is listed again before
    that round continues. Leases that vanish later are not accepted. `seen`: the text by which
    `scheduling.selectors.operate.losses` identifies the leases that the actor saw; if None, all
    leases that are missing now are accepted. A repeated call changes nothing.

    Raises:
        InvalidInputError: on `pool`: no losses are frozen, or other leases than the actor saw.
    """
    with operation(actor):
        rows = ExecutorHealth.objects.select_for_update()
        row = rows.filter(pool=pool, frozen_since__isnull=False).first()
        if row is None:
            raise invalid("pool", _(NOTHING_FROZEN), code=CONFLICT)
        if seen is not None and seen != name_of(row):
            raise invalid("pool", _(OTHERS_BY_NOW).format(now=len(row.missing)), code=CONFLICT)
        missing = sorted(row.missing)
        is_new = row.accepted != missing
        if is_new:
            row.accepted = missing
            row.save(update_fields=["accepted"])
            write_audit(
                actor,
                "executor.losses_accepted",
                f"pool {pool.name}",
                after={
                    "leases": len(missing),
                    "tokens": missing[:TOKENS_MAX],
                    "seen": name_of(row),
                },
                reason=reason,
            )
    return len(missing), is_new


def change_executor_options(
    *,
    actor: Actor,
    pool_id: int,
    options: Mapping[str, Any],
    reason: str = "",
    seen: str | None = None,
    on_host: bool = False,
    same_cluster: bool = False,
) -> bool:
    """Replace all options of a pool's executor; return whether anything changed.

    The next leases are launched with them; running leases keep the options of their launch. If
    nothing changed, nothing is recorded, not even the reason.

    `seen`: the hash of the options that the actor saw, by
    `scheduling.selectors.pools.executors.name_of_options`; not compared if None. `on_host`: the
    actor has a shell on the portal's machine, and may set `host_options`. `same_cluster`: the new
    options also find running leases, so `finds_by` may change while some exist.

    Raises:
        InvalidInputError: by field, such as `executor_options.conf`; on `executor_options`: they
            changed after the actor saw them, or the executor is missing.
    """
    with operation(actor):
        pool = Pool.objects.select_for_update(no_key=True).get(pk=pool_id)
        if missing := missing_executor(pool.executor):
            raise invalid(FIELD, f"{missing}.", code=CONFLICT)
        traits, errors = executor_traits(pool.executor), FieldErrors()
        check_options(traits.options_type, options, errors)
        if not same_cluster:
            _check_what_runs(pool, traits, options, errors)
        if not on_host:
            _check_host_options(pool, traits, options, errors)
        errors.raise_any()
        before: dict[str, Any] = pool.executor_options
        gone = dict.fromkeys(name for name in before if name not in options)
        was, becomes = changed(before, {**options, **gone})
        if was:
            if seen is not None and seen != name_of_options(before):
                raise invalid(FIELD, _(CHANGED_SINCE), code=CONFLICT)
            pool.executor_options = dict(options)
            pool.save(update_fields=["executor_options"])
            write_audit(
                actor,
                "pool.changed",
                f"pool {pool.name}",
                before={FIELD: was},
                after={FIELD: becomes, **({"same_cluster": True} if same_cluster else {})},
                reason=reason,
            )
    return bool(was)


def _check_host_options(
    pool: Pool, traits: ExecutorTraits, options: Mapping[str, Any], errors: FieldErrors
) -> None:
    """Add errors for changed options that name programs, files and users of machines."""
    present = pool.executor_options
    for name in traits.host_options:
        if (present.get(name) or None) != (options.get(name) or None):
            errors.add(f"{FIELD}.{name}", _(ON_HOST).format(pool=pool.name))


def _check_what_runs(
    pool: Pool, traits: ExecutorTraits, options: Mapping[str, Any], errors: FieldErrors
) -> None:
    """Add errors for changed options by which leases are found: they would seem to vanish."""
    present = pool.executor_options
    moved = [one for one in traits.finds_by if (present.get(one) or "") != (options.get(one) or "")]
    if not moved:
        return
    launched = Lease.objects.filter(pool=pool, state__in=Lease.LIVE_STATES)
    count = launched.exclude(state=Lease.State.WAITING).count()
    if count:
        leases = plural(count, "lease was", "leases were")
        for one in moved:
            reason = _(LAUNCHED_BY).format(leases=leases, option=one, pool=pool.name)
            errors.add(f"{FIELD}.{one}", reason, code=CONFLICT)
