"""Changes of lending and borrowing, maximum prices and offers by tenants' managers."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.utils.translation import gettext as _

from evenshare_core.domain.entitlements import Mode
from scheduling.engine.clock import wall_now
from scheduling.models import EqualPeople, GpuType, MessageKind, Pool
from scheduling.outbox.gather import announce
from scheduling.requests.sharing import OfferRequest, PeopleRule, SharingRequest
from scheduling.services.wake import wake_pool_after_commit
from tenants.audit import Actor, changed, write_audit
from tenants.idempotency import KeyedRequest, Made, begin_reply
from tenants.input.errors import invalid
from tenants.language import number
from tenants.models import IdleOffer, PriceLimit, Quota, SharingSetting, Tenant
from tenants.permissions import Action, may_in_tenant
from tenants.scopes import tenant_scope
from tenants.selectors.access import access_of
from tenants.selectors.quotas import quotas_in_force

OFFERS_MAX = 100  # the maximum number of open offers that a tenant may have in a pool


def set_sharing(
    *,
    tenant: Tenant,
    actor: Actor,
    pool_id: int,
    gpu_type: str,
    request: SharingRequest,
    now: datetime,
) -> bool:
    """Set a tenant's own settings for a GPU type; return whether anything changed.

    `now`: pool time. Rounds use them from the next snapshot on. Settings wider than the quota's
    bounds have no effect until the bounds are widened.

    Raises:
        InvalidInputError: the tenant has no quota of the type now.
    """
    with managed(tenant, actor):
        pool = Pool.objects.get(pk=pool_id)
        kind = _quota_in_force(pool_id, tenant, gpu_type, now).gpu_type
        row = _setting(pool, tenant, kind)
        before = _settings(row)
        row.mode, row.by_offer = Mode(request.mode).value, request.by_offer
        row.borrow_limit, row.lend_limit = request.borrow_limit, request.lend_limit
        return _save(row, before, actor)


def _setting(pool: Pool, tenant: Tenant, kind: GpuType) -> SharingSetting:
    """Return a tenant's settings for a GPU type, unsaved if it has none."""
    key: dict[str, Any] = {"pool": pool, "tenant": tenant, "gpu_type": kind}
    return SharingSetting.objects.filter(**key).first() or SharingSetting(**key)


def _save(row: SharingSetting, before: dict[str, Any], actor: Actor) -> bool:
    """Save settings; return whether they changed."""
    was, becomes = changed(before, _settings(row))
    if not becomes:
        return False
    row.save()
    subject = f"pool {row.pool.name}, {row.tenant.slug}, {row.gpu_type.name}"
    write_audit(actor, "sharing.changed", subject[:140], before=was, after=becomes)
    wake_pool_after_commit(row.pool)
    return True


def set_price_limit(
    *, tenant: Tenant, actor: Actor, pool_id: int, max_price: Decimal | None
) -> bool:
    """Set the maximum price of all jobs of a tenant in a pool; return whether it changed.

    Running terms keep their price; the limit applies to renewals and grants from the next snapshot
    on.
    """
    with managed(tenant, actor):
        pool = Pool.objects.get(pk=pool_id)
        rows = PriceLimit.objects.filter(pool_id=pool_id, tenant=tenant)
        before = rows.values_list("max_price", flat=True).first()
        if before == max_price:
            return False
        if max_price is None:
            rows.delete()
        else:
            PriceLimit.objects.update_or_create(
                pool=pool, tenant=tenant, defaults={"max_price": max_price}
            )
        write_audit(
            actor,
            "price_limit.changed",
            f"pool {pool.name}, {tenant.slug}"[:140],
            before={"max_price": _plain(before)},
            after={"max_price": _plain(max_price)},
        )
        wake_pool_after_commit(pool)
    return True


def set_people(*, tenant: Tenant, actor: Actor, pool_id: int, rule: PeopleRule) -> bool:
    """Set how a tenant's people share its places in a pool; return whether it changed."""
    with managed(tenant, actor):
        pool = Pool.objects.get(pk=pool_id)
        rows = EqualPeople.objects.filter(pool_id=pool_id, tenant=tenant)
        before = PeopleRule.EQUAL if rows.exists() else PeopleRule.FIRST_COME
        if before is rule:
            return False
        if rule is PeopleRule.EQUAL:
            EqualPeople.objects.create(pool=pool, tenant=tenant)
        else:
            rows.delete()
        write_audit(
            actor,
            "people.changed",
            f"pool {pool.name}, {tenant.slug}"[:140],
            before={"people": before.value},
            after={"people": rule.value},
        )
        wake_pool_after_commit(pool)
    return True


def make_offer(
    *,
    tenant: Tenant,
    actor: Actor,
    pool_id: int,
    request: OfferRequest,
    now: datetime,
    key: str | None = None,
    sets_by_offer: bool = False,
) -> Made[IdleOffer]:
    """Offer idle quota from `now` on (pool time); with an idempotency `key`, only once.

    `sets_by_offer`: from now on the type's idle quota is lent only by offers.

    Raises:
        InvalidInputError: by field.
        tenants.idempotency.MismatchError: the key was used with another offer.
        tenants.idempotency.InFlightError: the same request is still being served.
    """
    body = {
        "pool": pool_id,
        "gpu_type": request.gpu_type,
        "gpus": request.gpus,
        "floor": _plain(request.floor_price),
        "until": str(request.until),
    }
    asked = KeyedRequest.of(tenant, actor.user, "offers", key, body)
    with managed(tenant, actor):
        uid = uuid4()
        before = begin_reply(asked, [str(uid)]) if asked else None
        if before is not None:
            known = IdleOffer.objects.select_related("gpu_type")
            return Made(known.get(uid=before[0], tenant=tenant), is_replay=True)
        pool = Pool.objects.get(pk=pool_id)
        quota = _quota_in_force(pool_id, tenant, request.gpu_type, now)
        if sets_by_offer:
            setting = _setting(pool, tenant, quota.gpu_type)
            stored = _settings(setting)
            setting.by_offer = True
            _save(setting, stored, actor)
        _check_offer(quota, request, now)
        offer = IdleOffer.objects.create(
            uid=uid,
            tenant=tenant,
            pool=pool,
            gpu_type=quota.gpu_type,
            gpus=request.gpus,
            floor_price=request.floor_price,
            made_at=now,
            until=request.until,
            made_by=actor.user,
        )
        write_audit(actor, "offer.made", _offer_subject(pool, offer), after=_state(offer))
        wake_pool_after_commit(pool)
    return Made(offer, is_replay=False)


def revoke_offer(
    *, tenant: Tenant, actor: Actor, pool_id: int, uid: UUID, now: datetime
) -> IdleOffer | None:
    """Revoke an offer from `now` on (pool time); return None if the tenant has none with this id.

    An offer that was already revoked or has ended is not changed.
    """
    with managed(tenant, actor):
        rows = IdleOffer.objects.select_related("gpu_type", "pool")
        offer = rows.filter(uid=uid, tenant=tenant, pool_id=pool_id).first()
        if offer is None or offer.revoked_at is not None:
            return offer
        if offer.until is not None and offer.until <= now:
            return offer
        offer.revoked_at = max(now, offer.made_at)
        offer.save(update_fields=["revoked_at"])
        subject = _offer_subject(offer.pool, offer)
        write_audit(actor, "offer.revoked", subject, before=_state(offer))
        announce(
            MessageKind.OFFER_REVOKED,
            tenant_id=tenant.pk,
            pool_id=pool_id,
            event=f"offer:{uid}",
            data={
                "tenant": tenant.slug,
                "pool": offer.pool.name,
                "gpus": offer.gpus,
                "gpu_type": offer.gpu_type.name,
            },
            at=offer.revoked_at,
            now=wall_now(),
        )
    return offer


@contextmanager
def managed(tenant: Tenant, actor: Actor, action: Action = Action.SHARE) -> Iterator[None]:
    """Open a transaction of a user whose present role in a tenant allows `action`.

    Raises:
        PermissionDenied: the role does not allow it (any more).
    """
    with tenant_scope(tenant.pk):
        if not may_in_tenant(access_of(actor.user), action, tenant.pk):
            raise PermissionDenied
        # Changes of one tenant run one after the other.
        Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
        yield


def _quota_in_force(pool_id: int, tenant: Tenant, gpu_type: str, now: datetime) -> Quota:
    quotas = quotas_in_force(pool_id, now).filter(tenant=tenant).select_related("gpu_type")
    by_type = {row.gpu_type.name: row for row in quotas}
    if gpu_type not in by_type:
        hint = _("GPU types with quota: {names}.").format(
            names=", ".join(sorted(by_type)) or _("none")
        )
        raise invalid("gpu_type", _("is a type without quota in the pool now"), hint)
    return by_type[gpu_type]


def _check_offer(quota: Quota, request: OfferRequest, now: datetime) -> None:
    if request.until is not None and request.until <= now:
        raise invalid(
            "until", _("is past"), _("It is {now:%Y-%m-%dT%H:%M:%SZ} of pool time.").format(now=now)
        )
    mine = {"pool": quota.pool_id, "tenant": quota.tenant_id}
    settings = SharingSetting.objects.filter(**mine, gpu_type=quota.gpu_type)
    if not settings.filter(by_offer=True).exists():
        hint = _("First set idle quota of this type to be lent only by offers.")
        raise invalid("gpu_type", _("is lent without offers, so an offer has no effect"), hint)
    if request.gpus > quota.gpus:
        raise invalid(
            "gpus",
            _("is more than the quota"),
            _("The quota is {gpus}.").format(gpus=number(quota.gpus)),
        )
    standing = IdleOffer.objects.filter(**mine, revoked_at=None)
    if standing.filter(Q(until=None) | Q(until__gt=now)).count() >= OFFERS_MAX:
        raise invalid(
            "gpus",
            _("would exceed {most} open offers").format(most=OFFERS_MAX),
            _("Revoke one first."),
        )


def _settings(row: SharingSetting) -> dict[str, Any]:
    return {
        "mode": row.mode,
        "borrow_limit": row.borrow_limit,
        "lend_limit": row.lend_limit,
        "by_offer": row.by_offer,
    }


def _state(offer: IdleOffer) -> dict[str, Any]:
    return {
        "gpus": offer.gpus,
        "floor_price": _plain(offer.floor_price),
        "until": offer.until.isoformat() if offer.until else None,
    }


def _offer_subject(pool: Pool, offer: IdleOffer) -> str:
    return f"pool {pool.name}, {offer.tenant.slug}, {offer.gpu_type.name}, {offer.uid}"[:140]


def _plain(price: Decimal | None) -> str | None:
    return None if price is None else f"{price:.6f}"
