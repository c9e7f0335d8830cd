"""Verifications that clients report."""

from typing import ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from scheduling.api import schemas
from scheduling.api.base import SchedulingView, idempotency_key, replay_header, spec_of
from scheduling.requests.verifications import VerificationRequest, read_verification
from scheduling.selectors.rounds.verifications import SaidVerification, said_verification
from scheduling.services.verifications import OtherHeadError, keep_verification
from tenants.answers import plain
from tenants.api import logs
from tenants.api.problems import Problem, bad_field, not_yours
from tenants.api.resources import described
from tenants.input.errors import FieldError
from tenants.models import Tenant
from tenants.permissions import Action
from tenants.rate import Rate, take
from tenants.scopes import site_scope
from tenants.selectors.access import MembershipFacts
from tenants.selectors.quotas import pools_of
from tenants.tokens import Scope

# Per user: a burst of 60 reports, then one every ten seconds.
REPORTS = Rate(per_s=0.1, full=60)
EVIDENCE = (
    "Keep the head that you pinned and its signatures: two heads signed by the installation's"
    " key are the proof. Compare with a colleague: evenshare round pin --against."
)


class VerificationList(SchedulingView):
    address = "chain/<slug:name>/verifications"
    # Reading rights suffice, because nothing depends on a report.
    scopes: ClassVar[dict[str, str]] = {"POST": Scope.READ.value}
    http_method_names = ["post"]

    @described("verification_say", VerificationRequest, SaidVerification, 201, *schemas.ONCE)
    def post(self, request: Request, name: str) -> Response:
        """Report your verification: the head, the rounds or the time, and the number of findings.

        Only you and the operators see the report, and nothing depends on it. A head that is not of
        this log is refused with 409: you were shown a different log than other readers.
        """
        key = idempotency_key(request)
        facts = self.pool(name)
        wanted = read_verification(spec_of(request))
        tenant = self._own_tenant(wanted.tenant, facts.id)
        take(f"verification:{self.person.pk}", REPORTS)
        try:
            with logs.log_scope():
                made = keep_verification(
                    tenant=tenant, user=self.person, facts=facts, request=wanted, key=key
                )
        except OtherHeadError as error:
            field = FieldError(error.field, error.reason, EVIDENCE, "conflict")
            raise Problem("other_head", f"{error.reason} {EVIDENCE}", [field]) from error
        headers = replay_header(is_replay=made.is_replay)
        said = said_verification(made.row, tenant, facts.name)
        return Response(plain(said), status=201, headers=headers)

    def _own_tenant(self, slug: str | None, pool_id: int) -> Tenant:
        """Return the tenant that the report names, if the caller is a member."""
        own = self.access.memberships
        if slug is not None:
            if self.access.membership_named(slug) is None:
                raise not_yours(_known(own))
        elif not own:
            raise Problem("role", "You are in no tenant, so this cannot be recorded.")
        elif len(own) > 1:
            raise bad_field("tenant", "is required", _known(own))
        tenant = self.tenant(slug or own[0].slug, Action.SEE_TENANT)
        with site_scope():
            if pool_id not in pools_of(tenant.pk):
                raise bad_field("tenant", "has no quota in this pool")
        return tenant


def _known(memberships: tuple[MembershipFacts, ...]) -> str:
    return f"You are in: {', '.join(one.slug for one in memberships) or 'none'}."
