"""Stores verifications that users' clients report; nothing depends on them."""

from uuid import uuid4

from django.utils.translation import gettext as _

from evenshare_core.chain.records import read_record
from scheduling.models import Verification
from scheduling.requests.verifications import VerificationRequest
from scheduling.selectors.pools.lines import PoolFacts
from tenants import transparency
from tenants.idempotency import KeyedRequest, Made, begin_reply
from tenants.input.errors import invalid
from tenants.language import number
from tenants.models import Tenant, User
from tenants.scopes import site_scope, tenant_scope
from tenants.transparency.log import root


class OtherHeadError(Exception):
    """The log never had the head that the client was shown.

    `field`: the name of the request field that holds this head.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field, self.reason = field, reason


def keep_verification(
    *, tenant: Tenant, user: User, facts: PoolFacts, request: VerificationRequest, key: str | None
) -> Made[Verification]:
    """Store a verification that a user's client reports; with a key, only once.

    Raises:
        tenants.transparency.DamagedLogError: hashes of the log are missing.
        OtherHeadError: the head does not belong to the pool's log.
        InvalidInputError: the head does not cover the last round.
        tenants.idempotency.MismatchError: the key was used with another verification.
        tenants.idempotency.InFlightError: the same request is still being served.
    """
    body = {
        "pool": facts.id,
        **{name: str(getattr(request, name)) for name in request.__struct_fields__},
    }
    asked = KeyedRequest.of(tenant, user, "verifications", key, body)
    with site_scope():
        _guard_head(facts.name, request)
    with tenant_scope(tenant.pk):
        uid = uuid4()
        before = begin_reply(asked, [str(uid)]) if asked else None
        if before is not None:
            return Made(Verification.objects.get(uid=before[0]), is_replay=True)
        row = Verification.objects.create(
            uid=uid, tenant=tenant, pool_id=facts.id, user=user, kind=request.kind,
            size=request.size, root=request.root, first=request.first, last=request.last,
            since=request.since, until=request.until, checked=request.checked,
            findings=request.findings, unproven=request.unproven, client=request.client,
        )  # fmt: skip # rows of what belongs together
        row.refresh_from_db(fields=["said_at"])
    return Made(row, is_replay=False)


def _guard_head(pool: str, request: VerificationRequest) -> None:
    log = transparency.round_log(pool)
    there = transparency.size(log)
    if request.size > there:
        raise OtherHeadError(
            "size",
            f"The log of {pool} has {there:,} rounds, but you received a head of"
            f" {request.size:,}: it was shortened.",
        )
    own = root(log, request.size).hex()
    if request.root != own:
        raise OtherHeadError(
            "root",
            f"The log of {pool} has the root {own} at {request.size:,} rounds, but you received"
            " another: its history was forked or rewritten.",
        )
    [newest] = transparency.entries(log, request.size - 1, 1)
    if request.last is not None and request.last > read_record(newest.record).round:
        raise invalid(
            "last",
            _("is not among the {size} rounds of the head").format(size=number(request.size)),
        )
