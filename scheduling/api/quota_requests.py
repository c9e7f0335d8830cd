"""Requests for quota: tenants make and withdraw them, operators approve and decline them."""

from typing import ClassVar
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from scheduling.api import schemas
from scheduling.api.base import (
    OperatePoolView,
    SchedulingView,
    idempotency_key,
    replay_header,
)
from scheduling.requests.quota_requests import (
    QuotaApprovalRequest,
    QuotaAskRequest,
    QuotaDeclineRequest,
)
from scheduling.selectors.pools.lines import pool_id_named
from scheduling.selectors.sharing.quota_requests import (
    QuotaChangeRow,
    find_quota_request,
    list_quota_requests,
    quota_request_row,
)
from scheduling.services.quota_requests import (
    approve_quota,
    ask_quota,
    decline_quota,
    lock_open_request,
    withdraw_quota,
)
from tenants.answers import plain
from tenants.api.base import Who, actor_of
from tenants.api.operate import IF_MATCH, answer, refusal, request_of
from tenants.api.problems import bad_field, not_there
from tenants.api.resources import PAGE, Listed, Page, described
from tenants.input.errors import InvalidInputError, invalid
from tenants.models import QuotaChangeRequest, Tenant
from tenants.permissions import Action
from tenants.scopes import site_scope, tenants_scope
from tenants.selectors.quotas import pools_of
from tenants.services.quotas import basis_of
from tenants.tokens import Scope

STATES = QuotaChangeRequest.State.values
STATE = OpenApiParameter("state", OpenApiTypes.STR, OpenApiParameter.QUERY, enum=STATES)


class QuotaRequestView(SchedulingView):
    """Base of views of tenants that write requests for quota."""

    def handle_exception(self, exc: Exception) -> Response:
        """Return a refused request with errors by field."""
        return super().handle_exception(refusal(exc) if isinstance(exc, InvalidInputError) else exc)


class QuotaRequestList(Listed, QuotaRequestView):
    """List the requests for quota of your tenants, newest first; operators see all tenants'."""

    address = "quota-requests"
    operation = "quota_request_list"
    who = Who.ANYBODY_SIGNED_IN
    row = QuotaChangeRow
    about = "Requests for quota, the newest first."
    parameters = (schemas.TENANT, schemas.POOL, STATE, *PAGE)
    shows = ("QuotaChangeRequest.reason", "QuotaChangeRequest.uid")
    scopes: ClassVar[dict[str, str]] = {"GET": Scope.READ.value, "POST": Scope.JOBS_WRITE.value}

    def page(self) -> Page:
        state, pool, limit = self.param("state"), self.param("pool"), self.limit
        if state and state not in STATES:
            raise bad_field("state", "is not a state", f"States: {', '.join(STATES)}.")
        tenants, before = self.asked_tenants(), self.before("quota-requests")
        with tenants_scope(tenants):
            rows, more = list_quota_requests(
                tenants, pool=pool, state=state, before=before, limit=limit
            )
        return Page(rows, None if more is None else [more])

    @described("quota_request_make", QuotaAskRequest, QuotaChangeRow, 201, *schemas.ONCE)
    def post(self, request: Request) -> Response:
        """Request another quota for a tenant that you manage; an operator decides.

        A tenant can have one open request for each pool and GPU type.
        """
        key = idempotency_key(request)
        wanted = request_of(QuotaAskRequest, request.data)
        tenant = self._asking(wanted.tenant)
        with site_scope():
            pool_id = pool_id_named(wanted.pool)
            if pool_id is None or pool_id not in pools_of(tenant.pk):
                raise invalid("pool", "is not a pool in which the tenant has or had quota")
        made = ask_quota(
            actor=actor_of(self.person), tenant=tenant, pool_id=pool_id, request=wanted, key=key
        )
        with tenants_scope([tenant.pk]):
            shown = plain(quota_request_row(made.row.uid))
        return Response(shown, status=201, headers=replay_header(is_replay=made.is_replay))

    def _asking(self, slug: str) -> Tenant:
        if not slug and len(self.access.memberships) != 1:
            raise bad_field("tenant", "is required", "Name one of your tenants.")
        return self.own_tenant(slug or self.access.memberships[0].slug, Action.ASK_QUOTA)


class QuotaRequestWithdraw(QuotaRequestView):
    address = "quota-requests/<uuid:uid>/withdraw"
    scopes: ClassVar[dict[str, str]] = {"POST": Scope.JOBS_WRITE.value}
    http_method_names = ["post"]

    @described("quota_request_withdraw", None, QuotaChangeRow)
    def post(self, request: Request, uid: UUID) -> Response:  # noqa: ARG002 - DRF's signature
        """Withdraw an open request of a tenant that you manage. Repeating it is harmless."""
        tenants = self.tenants()
        with tenants_scope(tenants):
            known = find_quota_request(uid, tenants)
        if known is None:
            raise not_there()
        self.require(Action.ASK_QUOTA, known.tenant_id)
        withdraw_quota(actor=actor_of(self.person), tenant=known.tenant, uid=uid)
        with tenants_scope([known.tenant_id]):
            return Response(plain(quota_request_row(uid)))


class QuotaRequestApprove(OperatePoolView):
    address = "operate/quota-requests/<uuid:uid>/approve"

    @described("operate_quota_request_approve", QuotaApprovalRequest, QuotaChangeRow, 200, IF_MATCH)
    def post(self, request: Request, uid: UUID) -> Response:
        """Approve a request: set its quota, so that the next round uses it.

        `If-Match` needs the ETag of the pool's quotas. A request that is already decided is a
        conflict.
        """
        wanted = request_of(QuotaApprovalRequest, request.data)
        with self.edited(_pool_of(uid)) as (pool, now):
            lock_open_request(uid)
            basis = basis_of(pool.pk, now)
            self.require_match(f'"{basis}"')
            approve_quota(
                actor=self.actor, uid=uid, basis=basis, gpus=wanted.gpus, answer=wanted.answer
            )
            return answer(plain(quota_request_row(uid)), f'"{basis_of(pool.pk, now)}"')


class QuotaRequestDecline(OperatePoolView):
    address = "operate/quota-requests/<uuid:uid>/decline"
    preconditions: ClassVar[tuple[str, ...]] = ()

    @described("operate_quota_request_decline", QuotaDeclineRequest, QuotaChangeRow)
    def post(self, request: Request, uid: UUID) -> Response:
        """Decline a request, with a reason for the tenant."""
        _pool_of(uid)
        wanted = request_of(QuotaDeclineRequest, request.data)
        decline_quota(actor=self.actor, uid=uid, answer=wanted.answer)
        with site_scope():
            return Response(plain(quota_request_row(uid)))


def _pool_of(uid: UUID) -> str:
    """Return the name of a request's pool.

    Raises:
        Problem: 404 if the request does not exist.
    """
    with site_scope():
        known = find_quota_request(uid)
    if known is None:
        raise not_there()
    return known.pool.name
