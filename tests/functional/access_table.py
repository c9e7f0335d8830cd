"""Expected statuses of every URL of the site by requester, for the matrix test.

A new route must get a row here, or the test fails. The requesters:

- `owner`: member of the tenant of the URL.
- `mate`: viewer of the same tenant.
- `manager`: manager of the same tenant.
- `neighbour`: manager of another tenant in the same pool, which shows tenants only their own rows.
- `outsider`: manager of a tenant in another pool.
- `operator`: site role operator.
- `nobody`: not signed in.
- `reader`: the owner's token with only the scope `read`. It has no session for pages.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from portal.site.urls_api import VIEWS
from tenants.api.base import Who
from tenants.api.resources import Described
from tenants.tokens import Scope


class Row(NamedTuple):
    """The expected statuses by requester."""

    owner: int
    mate: int
    manager: int
    neighbour: int
    outsider: int
    operator: int
    nobody: int
    reader: int


ACTORS = Row._fields
# These requesters must not see the tenant's rows.
FOREIGN = ("neighbour", "outsider", "nobody")


def everybody(status: int) -> Row:
    return Row(*[status] * len(ACTORS))


PUBLIC = everybody(200)
TENANT_PAGE = Row(200, 200, 200, 404, 404, 200, 302, 302)
# A viewer may not submit; an operator may not spend a tenant's credit.
SUBMIT_PAGE = Row(200, 403, 200, 404, 404, 403, 302, 302)
POOL_PAGE = Row(200, 200, 200, 200, 404, 200, 302, 302)
DEMO_POOL = Row(200, 200, 200, 200, 404, 200, 200, 200)
# Only site roles see the console. An empty form is refused; actions redirect back.
CONSOLE = Row(404, 404, 404, 404, 404, 200, 302, 302)
CONSOLE_REFUSES = CONSOLE._replace(operator=422)
CONSOLE_ACTS = CONSOLE._replace(operator=302)
CONSOLE_FORM = {"GET": CONSOLE, "POST": CONSOLE_REFUSES}

# API. All signed-in users get a list of the rows that they may see.
API_LIST = Row(200, 200, 200, 200, 200, 200, 401, 200)
API_JOB_LIST = Row(200, 200, 200, 200, 200, 200, 401, 403)
API_TENANT = Row(200, 200, 200, 404, 404, 200, 401, 200)
API_POOL = Row(200, 200, 200, 200, 404, 200, 401, 200)
API_JOB = Row(200, 200, 200, 404, 404, 200, 401, 403)
API_CANCEL = Row(200, 403, 200, 404, 404, 200, 401, 403)
HOLD_PAGE = Row(403, 403, 302, 404, 404, 302, 302, 302)
# The job was submitted by someone else, so a member may not order it; it runs, so it is not held.
API_RELEASE = API_CANCEL._replace(owner=403)
API_HOLD = API_RELEASE._replace(manager=409, operator=409)
API_PRIORITY = API_RELEASE._replace(operator=403)
# Submission to the owner's tenant by its slug: other users get 400, as for an unknown tenant.
API_SUBMIT = Row(201, 403, 201, 400, 400, 403, 401, 403)
# No job of the stage's sweep has failed.
API_RESUBMIT = Row(409, 403, 409, 404, 404, 403, 401, 403)
API_DRY_RUN = Row(200, 403, 200, 400, 400, 403, 401, 403)
# A user without another tenant gets 400, because the recipient does not exist.
API_ASK = Row(403, 403, 400, 400, 400, 403, 401, 403)
# A request for the quota is open. The tenant is unknown to users of other tenants.
API_ASK_QUOTA = API_ASK._replace(manager=409)
# The operator's REST API, like the console. An edit without If-Match is refused.
OPERATE = Row(404, 404, 404, 404, 404, 200, 401, 404)
OPERATE_EDIT = OPERATE._replace(operator=428)
# Previews and allowances without a body.
OPERATE_BARE = OPERATE._replace(operator=400)
# A tenant's job types. Roles that may submit jobs may change them.
API_PROFILE_PUT = Row(200, 403, 200, 404, 404, 403, 401, 403)
API_PROFILE_DROP = API_PROFILE_PUT._replace(owner=204, manager=204)
# A tenant's lending and borrowing: only managers may change it.
API_SHARE = Row(403, 403, 200, 404, 404, 403, 401, 403)
API_VERIFY = Row(400, 400, 400, 400, 404, 400, 401, 400)
API_OFFER = API_SHARE._replace(manager=201)
# A tenant's members: managers and operators change them, members may leave.
MEMBERS_PAGE = Row(403, 403, 422, 404, 404, 422, 302, 302)
API_MEMBERS = Row(403, 403, 200, 404, 404, 200, 401, 403)
API_LEAVE = API_MEMBERS._replace(mate=204, manager=204, operator=204)
API_INVITE = API_MEMBERS._replace(manager=201, operator=201)
API_REVOKE = API_MEMBERS._replace(manager=204, operator=204)
SHARE_PAGE = Row(403, 403, 422, 404, 404, 403, 302, 302)
# A person's own subscriptions and messages.
API_SUBSCRIBE = Row(201, 201, 201, 400, 400, 400, 401, 403)
OWN_ACTION = Row(302, 404, 404, 404, 404, 404, 302, 302)
OWN_ROW = Row(200, 404, 404, 404, 404, 404, 401, 403)
TOKEN_DROP = Row(204, 404, 404, 404, 404, 404, 401, 403)


@dataclass(frozen=True)
class Route:
    """The statuses by method. Methods that are not listed get 405, or a status of `others`.

    `path` has values for parts of the URL; `body` is what POST sends: JSON for the API, else a
    form. `shows` lists fields of the tenant's rows in the answer to its manager, or to the operator
    if managers get 404. None fails a test until the fields are listed.
    """

    methods: dict[str, Row]
    path: dict[str, str] = field(default_factory=dict)
    query: str = ""
    body: Any = None
    others: tuple[int, ...] = (405,)
    shows: tuple[str, ...] | None = None

    def showing(self, *fields: str) -> Route:
        """Return the route with the fields that its answer shows (`Job.name`); empty for none."""
        return replace(self, shows=fields)


def get(row: Row, query: str = "", **path: str) -> Route:
    return Route({"GET": row}, path, query)


def post(row: Row, body: Any = None, **path: str) -> Route:
    return Route({"POST": row}, path, body=body)


# Words in braces are replaced by values of the stage's tenant. The dates cover all rows of a stage.
STRETCH = "from=2001-01-01&to=2032-12-31&by=month"
SPEC = {"pool": "{pool}", "gpus": 1, "tenant": "{slug}", "command": ["true"]}
QUOTA = {
    "tenant": "{slug}",
    "pool": "{pool}",
    "gpu_type": "{gpu_type}",
    "gpus": 7,
    "reason": "none",
}
GIFT = {"tenant": "{slug}", "to": "nobody", "amount": "1", "reason": "none"}
PATHS = {
    "slug": "{slug}",
    "name": "{pool}",
    "uid": "{job}",
    "sweep": "{sweep}",
    "number": "{round}",
    "transfer": "{transfer}",
    "node": "{node}",
    "gpu_type": "{gpu_type}",
    "role": "researcher",
    "book": "main",
    "profile": "{profile}",
    "offer": "{offer}",
    "username": "{viewer}",
    "rest": "nothing/here",
    "path": "results/output.txt",
}

TABLE: dict[str, Route] = {
    # Signed-in users are redirected to their own page.
    "": get(Row(302, 302, 302, 302, 302, 302, 200, 200)).showing(),
    # Django's form views handle PUT like POST and show the form again.
    "login/": Route(
        {"GET": Row(302, 302, 302, 302, 302, 302, 200, 200)}, others=(200, 302, 405)
    ).showing(),
    "logout/": Route({"POST": everybody(302)}),
    # The user's own account; an empty form is refused.
    "account/": Route(
        {
            "GET": Row(200, 200, 200, 200, 200, 200, 302, 302),
            "POST": Row(422, 422, 422, 422, 422, 422, 302, 302),
        }
    ).showing("User.username", "Tenant.name"),
    # An invitation's link; without a secret it is not valid.
    "join/": Route({"GET": everybody(404), "POST": everybody(404)}).showing(),
    # Without a provider (tests/functional/test_openid.py has one).
    "login/openid/": get(everybody(404)).showing(),
    "login/openid/callback/": get(everybody(404)).showing(),
    "account/openid/": post(everybody(404)),
    "language/": post(everybody(302), {"language": "en"}),
    # The demo's sign-in buttons; the stage has no demo user.
    "demo/<slug:role>/": Route({"POST": everybody(404)}),
    "t/<slug:slug>/": get(TENANT_PAGE).showing("Account.balance"),
    "t/<slug:slug>/jobs/": get(TENANT_PAGE).showing(
        "Job.name", "Job.uid", "User.username", "SavedFilter.name", "SavedFilter.query"
    ),
    "t/<slug:slug>/jobs/act/": post(
        Row(200, 403, 200, 404, 404, 200, 302, 302),
        {"action": "tag", "job": "{job}", "tags": "seen"},
    ),
    # Empty forms are refused by a message; forms lead back to the list.
    "t/<slug:slug>/jobs/filters/": post(Row(302, 302, 302, 404, 404, 302, 302, 302)),
    "t/<slug:slug>/jobs/columns/": post(Row(302, 302, 302, 404, 404, 302, 302, 302)),
    "jobs/<uuid:uid>/": get(TENANT_PAGE).showing(
        "Job.command", "Job.comment", "Job.tags", "Job.environment", "Profile.name", "Log.text"
    ),
    "account/tokens/": Route(
        {
            "GET": Row(200, 200, 200, 200, 200, 200, 302, 302),
            "POST": Row(422, 422, 422, 422, 422, 422, 302, 302),
        }
    ).showing("ApiToken.name", "ApiToken.uid"),
    "account/tokens/<uuid:uid>/revoke/": Route(
        {"POST": Row(302, 404, 404, 404, 404, 404, 302, 302)}, {"uid": "{token}"}
    ),
    "account/notifications/": Route(
        {
            "GET": Row(200, 200, 200, 200, 200, 200, 302, 302),
            "POST": Row(422, 422, 422, 422, 422, 422, 302, 302),
        }
    ).showing("Subscription.uid", "Subscription.tag", "Delivery.error"),
    "account/notifications/<uuid:uid>/<slug:action>/": Route(
        {"POST": OWN_ACTION}, {"uid": "{subscription}", "action": "pause"}
    ),
    "account/notifications/messages/<uuid:uid>/again/": Route(
        {"POST": OWN_ACTION}, {"uid": "{message}"}
    ),
    # A link in a mail works without signing in, by its token; this one is wrong.
    **dict.fromkeys(
        ("account/notifications/off/<str:token>/", "account/notifications/confirm/<str:token>/"),
        Route({"GET": everybody(404), "POST": everybody(404)}, {"token": "wrong"}).showing(),
    ),
    "pools/": get(Row(200, 200, 200, 200, 200, 200, 302, 302)).showing(),
    "pools/<slug:name>/line/": get(DEMO_POOL).showing(),
    "pools/<slug:name>/": get(POOL_PAGE).showing("Job.name", "Job.uid"),
    "pools/<slug:name>/history/": get(POOL_PAGE).showing("Job.name", "Job.uid"),
    "pools/<slug:name>/prices/": get(POOL_PAGE).showing("UsageLine.price"),
    "pools/<slug:name>/prices/<slug:gpu_type>/<int:number>/": get(POOL_PAGE).showing(
        "UsageLine.price"
    ),
    "pools/<slug:name>/prices.csv": get(POOL_PAGE).showing("UsageLine.price"),
    "pools/<slug:name>/starts/": get(POOL_PAGE).showing(),
    "pools/<slug:name>/rounds/": get(POOL_PAGE).showing(),
    "pools/<slug:name>/rounds/<int:number>/": get(POOL_PAGE).showing(
        "Job.name", "Job.uid", "Profile.name"
    ),
    "pools/<slug:name>/rounds/<int:number>/counterfactual/": get(POOL_PAGE).showing("Profile.name"),
    "pools/<slug:name>/rounds/<int:number>/<slug:table>/": get(POOL_PAGE, table="shares").showing(),
    "pools/<slug:name>/trades/": get(POOL_PAGE).showing(),
    "pools/<slug:name>/trades/<int:number>/": get(POOL_PAGE, number="{trade}").showing(),
    "t/<slug:slug>/jobs/new/": Route({"GET": SUBMIT_PAGE, "POST": SUBMIT_PAGE}).showing(
        "Profile.name"
    ),
    "t/<slug:slug>/jobs/dry-run/": post(SUBMIT_PAGE),
    "t/<slug:slug>/profiles/": Route(
        {"GET": TENANT_PAGE, "POST": SUBMIT_PAGE._replace(owner=422, manager=422)}
    ).showing("Profile.name"),
    "t/<slug:slug>/profiles/<slug:profile>/": get(TENANT_PAGE).showing("Profile.name"),
    "t/<slug:slug>/sharing/": Route({"GET": TENANT_PAGE, "POST": SHARE_PAGE}).showing(
        "PriceLimit.max_price", "IdleOffer.floor_price", "IdleOffer.uid"
    ),
    "t/<slug:slug>/quota/": Route({"GET": TENANT_PAGE, "POST": SHARE_PAGE}).showing(
        "QuotaChangeRequest.reason", "QuotaChangeRequest.uid"
    ),
    "t/<slug:slug>/members/": Route({"GET": TENANT_PAGE, "POST": MEMBERS_PAGE}).showing(
        "User.username", "Invitation.note", "Invitation.uid"
    ),
    "t/<slug:slug>/replays/": get(TENANT_PAGE).showing("PriceLimit.max_price"),
    # The job of the table has no submitter, who could open its session.
    "jobs/<uuid:uid>/session/": post(Row(403, 403, 403, 404, 404, 403, 302, 302)),
    # Only the proxy of sessions gets an answer.
    "sessions/enter": get(everybody(404)).showing(),
    "sessions/authorize": get(everybody(404)).showing(),
    "jobs/<uuid:uid>/cancel/": post(Row(302, 403, 302, 404, 404, 302, 302, 302)),
    "sweeps/<uuid:sweep>/": get(TENANT_PAGE).showing("Sweep.name", "Job.name", "Job.parameters"),
    "sweeps/<uuid:sweep>/cancel/": post(Row(302, 403, 302, 404, 404, 302, 302, 302)),
    "sweeps/<uuid:sweep>/resubmit/": post(Row(302, 403, 302, 404, 404, 403, 302, 302)),
    "jobs/<uuid:uid>/hold/": post(HOLD_PAGE),
    "jobs/<uuid:uid>/release/": post(HOLD_PAGE),
    "jobs/<uuid:uid>/priority/": post(HOLD_PAGE._replace(operator=403), {"priority": "-1"}),
    "jobs/<uuid:uid>/log/": get(TENANT_PAGE).showing("Job.name", "Log.text"),
    # without jobs, a form
    "compare/": get(Row(200, 200, 200, 200, 200, 200, 302, 302)).showing(),
    "compare.csv": get(Row(200, 200, 200, 200, 200, 200, 302, 302)).showing(),
    "jobs/<uuid:uid>/files/": get(TENANT_PAGE).showing("Job.name", "Log.text"),
    "jobs/<uuid:uid>/files/<path:path>": get(TENANT_PAGE).showing("Log.text"),
    "jobs/<uuid:uid>/metrics/": get(TENANT_PAGE).showing("Log.text"),
    "jobs/<uuid:uid>/metrics.csv": get(TENANT_PAGE).showing("Log.text"),
    "jobs/<uuid:uid>/usage/": get(TENANT_PAGE).showing(),
    "ledger/": get(Row(302, 302, 302, 302, 302, 200, 302, 302)).showing(
        "Tenant.slug", "Account.balance"
    ),
    "t/<slug:slug>/ledger/": get(TENANT_PAGE).showing(
        "Account.balance", "Entry.amount", "Transfer.id"
    ),
    # the page shows only sums
    "t/<slug:slug>/ledger/statement/": get(TENANT_PAGE, STRETCH).showing(),
    "t/<slug:slug>/ledger/statement.csv": get(TENANT_PAGE, STRETCH).showing(
        "Entry.amount", "Transfer.id"
    ),
    "t/<slug:slug>/ledger/contribution/": get(TENANT_PAGE, STRETCH).showing("UsageShare.amount"),
    "t/<slug:slug>/ledger/contribution/line/": get(TENANT_PAGE).showing("UsageShare.amount"),
    "t/<slug:slug>/ledger/contribution.csv": get(TENANT_PAGE, STRETCH).showing("UsageShare.amount"),
    "pools/<slug:name>/revenue/": get(CONSOLE, STRETCH).showing(),  # the page shows only sums
    "t/<slug:slug>/ledger/<uuid:transfer>/": get(TENANT_PAGE).showing(
        "Job.name", "Job.uid", "Entry.amount", "UsageLine.amount", "Transfer.id"
    ),
    # Only a manager may request a transfer; an empty form is refused.
    "t/<slug:slug>/credit/": Route(
        {"GET": TENANT_PAGE, "POST": Row(403, 403, 422, 404, 404, 403, 302, 302)}
    ).showing("TransferRequest.reason"),
    # Probes for clients on the same machine, such as the test client
    "healthz": get(PUBLIC).showing(),
    "readyz": get(PUBLIC).showing(),
    "metrics": get(PUBLIC).showing(),
    # The operator's console
    "operate/": get(CONSOLE).showing("Tenant.name", "Job.name", "Job.quarantine"),
    "operate/audit/": get(CONSOLE).showing(
        "User.username", "AuditRecord.subject", "AuditRecord.request_id"
    ),
    "operate/tenants/": Route(CONSOLE_FORM).showing("Tenant.name"),
    "operate/tenants/<slug:slug>/": Route(CONSOLE_FORM).showing("Tenant.name", "User.username"),
    "operate/people/": Route(CONSOLE_FORM).showing(
        "User.username", "User.first_name", "Tenant.name"
    ),
    "operate/credit/": Route(CONSOLE_FORM).showing("Tenant.name", "TransferRequest.reason"),
    "operate/credit/<slug:slug>/<slug:book>/": Route(CONSOLE_FORM).showing("Tenant.name"),
    "operate/quota-requests/": get(CONSOLE).showing("Tenant.name", "QuotaChangeRequest.reason"),
    "operate/quota-requests/<uuid:uid>/": Route(CONSOLE_FORM, {"uid": "{quota_request}"}).showing(
        "Tenant.name", "QuotaChangeRequest.reason"
    ),
    "operate/pools/<slug:name>/quotas/": Route(CONSOLE_FORM).showing("Tenant.name"),
    "operate/pools/<slug:name>/quotas/undo/": post(CONSOLE_ACTS),
    "operate/pools/<slug:name>/nodes/": Route(CONSOLE_FORM).showing(),
    "operate/pools/<slug:name>/settings/": Route(CONSOLE_FORM).showing(),
    "operate/pools/<slug:name>/policies/": get(CONSOLE).showing(),
    "operate/pools/<slug:name>/health/": Route(CONSOLE_FORM).showing("Job.name", "Job.quarantine"),
    "operate/pools/<slug:name>/what-if/": Route(CONSOLE_FORM).showing(),
    "operate/pools/<slug:name>/what-if/<int:number>/": get(
        CONSOLE, number="{simulation}"
    ).showing(),
    "operate/pools/<slug:name>/what-if/<int:number>/cancel/": post(
        CONSOLE_ACTS, number="{simulation}"
    ),
    "operate/pools/<slug:name>/what-if/<int:number>/show/": post(
        CONSOLE_ACTS, number="{simulation}"
    ),
    "operate/jobs/<uuid:uid>/release/": post(CONSOLE_ACTS),
    # The API: GET is added below from the views.
    "api/v1/tokens": post(everybody(401), {"username": "canaryada", "password": "not this"}),
    "api/v1/tokens/<uuid:uid>": Route({"DELETE": TOKEN_DROP}, {"uid": "{token}"}),
    "api/v1/subscriptions": post(
        API_SUBSCRIBE, {"tenant": "{slug}", "channel": "ntfy", "address": "https://ntfy.example/x"}
    ),
    "api/v1/subscriptions/<uuid:uid>": Route({"DELETE": TOKEN_DROP}, {"uid": "{subscription}"}),
    "api/v1/subscriptions/<uuid:uid>/test": post(OWN_ROW, uid="{subscription}"),
    "api/v1/messages/<uuid:uid>/replay": post(OWN_ROW, uid="{message}"),
    "api/v1/jobs": post(API_SUBMIT, SPEC),
    "api/v1/jobs/bulk": post(API_SUBMIT, {"jobs": [SPEC]}),
    "api/v1/jobs/dry-run": post(API_DRY_RUN, SPEC),
    # A person with the right in some tenant gets a refusal for each job of another tenant.
    "api/v1/jobs/actions": post(
        API_JOB_LIST._replace(mate=403), {"action": "tag", "jobs": ["{job}"], "tags": ["seen"]}
    ),
    "api/v1/jobs/<uuid:uid>/cancel": post(API_CANCEL),
    "api/v1/jobs/<uuid:uid>/session": post(
        API_CANCEL._replace(owner=403, manager=403, operator=403)
    ),
    "api/v1/sweeps": post(API_SUBMIT, {**SPEC, "array": "0-1"}),
    "api/v1/sweeps/<uuid:sweep>/cancel": post(API_CANCEL),
    "api/v1/sweeps/<uuid:sweep>/resubmit": post(API_RESUBMIT),
    "api/v1/jobs/<uuid:uid>/hold": post(API_HOLD),
    "api/v1/jobs/<uuid:uid>/release": post(API_RELEASE),
    "api/v1/jobs/<uuid:uid>/priority": post(API_PRIORITY, {"priority": -1}),
    "api/v1/pools/<slug:name>/profiles/<slug:slug>/<slug:profile>": Route(
        {"PUT": API_PROFILE_PUT, "DELETE": API_PROFILE_DROP}, body={"speeds": {"v100": "1"}}
    ),
    "api/v1/pools/<slug:name>/sharing/<slug:slug>": Route(
        {"PUT": API_SHARE}, body={"max_price": "1"}
    ),
    "api/v1/pools/<slug:name>/people/<slug:slug>": Route(
        {"PUT": API_SHARE}, body={"people": "equal"}
    ),
    "api/v1/pools/<slug:name>/sharing/<slug:slug>/<slug:gpu_type>": Route(
        {"PUT": API_SHARE}, body={"by_offer": True}
    ),
    "api/v1/pools/<slug:name>/offers/<slug:slug>": post(API_OFFER, {"gpu_type": "v100", "gpus": 1}),
    "api/v1/pools/<slug:name>/offers/<slug:slug>/<uuid:offer>": Route({"DELETE": API_SHARE}),
    # An empty verification. Users who may see the pool get the list of missing fields.
    "api/v1/chain/<slug:name>/verifications": post(API_VERIFY),
    # The answer names other tenants if the pool shows them, but never shows their texts and ids.
    "api/v1/rounds/<slug:name>/<int:number>/bundle": get(API_POOL).showing(),
    "api/v1/jobs/<uuid:uid>/files/<path:path>": get(API_JOB).showing("Log.text"),
    "api/v1/bundle-schema": get(PUBLIC).showing(),
    "api/v1/transfers": post(API_ASK, GIFT),
    "api/v1/quota-requests": post(API_ASK_QUOTA, QUOTA),
    "api/v1/quota-requests/<uuid:uid>/withdraw": post(API_SHARE, uid="{quota_request}"),
    "api/v1/tenants/<slug:slug>/members/<str:username>": Route(
        {"PATCH": API_MEMBERS, "DELETE": API_LEAVE}, body={"role": "viewer"}
    ),
    "api/v1/tenants/<slug:slug>/invitations": Route(
        {"GET": API_MEMBERS, "POST": API_INVITE}, body={"role": "viewer"}
    ),
    "api/v1/tenants/<slug:slug>/invitations/<uuid:uid>": Route(
        {"DELETE": API_REVOKE}, {"uid": "{invitation}"}
    ),
    # The operator's REST
    "api/v1/operate/pools/<slug:name>": Route({"PATCH": OPERATE_EDIT}),
    "api/v1/operate/pools/<slug:name>/pause": post(OPERATE_EDIT),
    "api/v1/operate/pools/<slug:name>/resume": post(OPERATE_EDIT),
    "api/v1/operate/pools/<slug:name>/scale": post(OPERATE_EDIT, {"scale": 2}),
    "api/v1/operate/pools/<slug:name>/losses/accept": post(OPERATE_EDIT),
    "api/v1/operate/pools/<slug:name>/overdue/<uuid:uid>/<int:number>/end": post(OPERATE_EDIT),
    "api/v1/operate/quotas/preview": post(OPERATE_BARE),
    "api/v1/operate/quotas/<slug:name>/<slug:slug>/<slug:gpu_type>": Route(
        {"PUT": OPERATE_EDIT}, body={"gpus": 1}
    ),
    "api/v1/operate/nodes": post(OPERATE_EDIT),
    "api/v1/operate/nodes/<slug:name>/<slug:node>": Route(
        {"PATCH": OPERATE_EDIT, "DELETE": OPERATE_EDIT}
    ),
    "api/v1/operate/nodes/<slug:name>/<slug:node>/drain": post(OPERATE_EDIT),
    "api/v1/operate/nodes/<slug:name>/<slug:node>/resume": post(OPERATE_EDIT),
    "api/v1/operate/maintenance": post(OPERATE_EDIT),
    "api/v1/operate/maintenance/<slug:name>/<int:number>": Route(
        {"DELETE": OPERATE_EDIT}, {"number": "{window}"}
    ),
    "api/v1/operate/tenants": post(OPERATE_EDIT),
    "api/v1/operate/credit/<slug:slug>/<slug:book>": Route({"PUT": OPERATE_EDIT}),
    "api/v1/operate/allowances": post(OPERATE_BARE),
    # A job's id is not the id of a transfer request.
    "api/v1/operate/transfers/<uuid:uid>/approve": post(OPERATE._replace(operator=404)),
    "api/v1/operate/transfers/<uuid:uid>/refuse": post(OPERATE._replace(operator=404)),
    "api/v1/operate/quota-requests/<uuid:uid>/approve": post(OPERATE_EDIT, uid="{quota_request}"),
    "api/v1/operate/quota-requests/<uuid:uid>/decline": post(
        OPERATE, {"answer": "none"}, uid="{quota_request}"
    ),
    "api/v1/schema": get(PUBLIC).showing(),
    "api/v1/docs": get(PUBLIC).showing(),
    "api/v1/docs/<slug:resource>": Route({"GET": PUBLIC}, {"resource": "jobs"}).showing(),
    "api/v1/<anything:rest>": Route({"GET": everybody(404)}, others=(404, 405)).showing(),
}

# The statuses by the audience that a view declares. Tokens for jobs need a separate scope.
FINDS = {
    Who.ANYBODY_SIGNED_IN: API_LIST,
    Who.TENANT: API_TENANT,
    Who.POOL: API_POOL,
    Who.SITE: OPERATE,
}
# Views that require a tenant, a pool or a number in the query.
ASKS = {
    **dict.fromkeys(("rounds", "prices", "operate/quotas"), "pool={pool}"),
    **dict.fromkeys(("usage", "credit"), "tenant={slug}"),
    **dict.fromkeys(
        ("contribution", "contribution/lines", "income", "entries"), "tenant={slug}&pool={pool}"
    ),
    "chain/<slug:name>/inclusion": "round={round}",
    "chain/<slug:name>/consistency": "first=0&second=1",
    "ledgers/<slug:book>/chain/inclusion": "index=0",
    "ledgers/<slug:book>/chain/consistency": "first=0&second=1",
}
for _view in VIEWS:
    if issubclass(_view, Described):
        _row = FINDS[_view.who]
        if _view.scope_of("GET") == Scope.JOBS_READ:
            _row = _row._replace(reader=403)
        _route = TABLE.get(f"api/v1/{_view.address}", Route({}))
        TABLE[f"api/v1/{_view.address}"] = replace(
            _route,
            methods={"GET": _row, **_route.methods},
            query=ASKS.get(_view.address, ""),
            shows=_view.shows,
        )

# For GET, the other site roles get the operator's status except at these URLs. They may not change
# anything.
FINANCE_GETS = {
    "t/<slug:slug>/": 404,
    "t/<slug:slug>/jobs/": 404,
    "t/<slug:slug>/jobs/new/": 404,
    "t/<slug:slug>/profiles/": 404,
    "t/<slug:slug>/profiles/<slug:profile>/": 404,
    "t/<slug:slug>/sharing/": 404,
    "t/<slug:slug>/quota/": 404,
    "t/<slug:slug>/members/": 404,
    "t/<slug:slug>/replays/": 404,
    "api/v1/tenants/<slug:slug>/members": 404,
    "api/v1/tenants/<slug:slug>/invitations": 404,
    "api/v1/pools/<slug:name>/profiles/<slug:slug>/<slug:profile>": 404,
    "api/v1/pools/<slug:name>/sharing/<slug:slug>": 404,
    "api/v1/pools/<slug:name>/offers/<slug:slug>": 404,
    "api/v1/pools/<slug:name>/idle/<slug:slug>": 404,
    "api/v1/pools/<slug:name>/week/<slug:slug>": 404,
    "jobs/<uuid:uid>/": 404,
    "sweeps/<uuid:sweep>/": 404,
    "jobs/<uuid:uid>/log/": 404,
    "jobs/<uuid:uid>/files/": 404,
    "jobs/<uuid:uid>/files/<path:path>": 404,
    "jobs/<uuid:uid>/metrics/": 404,
    "jobs/<uuid:uid>/metrics.csv": 404,
    "jobs/<uuid:uid>/usage/": 404,
    "api/v1/sweeps/<uuid:sweep>": 404,
    "api/v1/sweeps/<uuid:sweep>/jobs": 404,
    "api/v1/jobs/<uuid:uid>": 404,
    "api/v1/jobs/<uuid:uid>/why": 404,
    "api/v1/jobs/<uuid:uid>/deadline": 404,
    "api/v1/jobs/<uuid:uid>/logs": 404,
    "api/v1/jobs/<uuid:uid>/files": 404,
    "api/v1/jobs/<uuid:uid>/files/<path:path>": 404,
    "api/v1/jobs/<uuid:uid>/metrics": 404,
    "api/v1/jobs/<uuid:uid>/usage": 404,
    "api/v1/jobs/<uuid:uid>/fairness": 404,
}
# Finance may change these like an operator.
KEPT = {
    *("operate/credit/", "operate/credit/<slug:slug>/<slug:book>/"),
    "api/v1/operate/credit/<slug:slug>/<slug:book>",
    "api/v1/operate/allowances",
    "api/v1/operate/transfers/<uuid:uid>/approve",
    "api/v1/operate/transfers/<uuid:uid>/refuse",
}
AUDITOR_GETS: dict[str, int] = {"api/v1/tenants/<slug:slug>/invitations": 403}

# Routes with a query that names an object of a tenant or a pool.
ASKED_FOR: tuple[tuple[str, Route], ...] = (
    ("t/<slug:slug>/", get(TENANT_PAGE, "pool={pool}").showing("Job.name")),
    ("t/<slug:slug>/jobs/", get(TENANT_PAGE, "pool={pool}").showing("Job.name")),
    ("t/<slug:slug>/jobs/new/", get(SUBMIT_PAGE, "from={job}").showing("Job.command")),
    ("t/<slug:slug>/jobs/new/", get(SUBMIT_PAGE, "pool={pool}").showing()),
    ("t/<slug:slug>/jobs/new/", get(SUBMIT_PAGE, "sweep={sweep}").showing("Sweep.name")),
    ("compare/", get(TENANT_PAGE, "job={job}").showing("Job.name", "Job.uid", "Log.text")),
    ("compare.csv", get(TENANT_PAGE, "job={job}").showing("Job.name", "Job.uid", "Log.text")),
    ("t/<slug:slug>/profiles/", get(TENANT_PAGE, "pool={pool}").showing("Profile.name")),
    ("t/<slug:slug>/sharing/", get(TENANT_PAGE, "pool={pool}").showing("IdleOffer.uid")),
    ("t/<slug:slug>/quota/", get(TENANT_PAGE, "pool={pool}").showing("QuotaChangeRequest.uid")),
    # Transfers for GPUs lent to the other tenant, and for GPUs that both lent to a third tenant.
    *(
        ("t/<slug:slug>/ledger/<uuid:transfer>/", get(TENANT_PAGE, transfer=one).showing())
        for one in ("{lent}", "{lent_too}")
    ),
    ("api/v1/jobs", get(API_JOB_LIST, "tenant={slug}").showing("Job.name")),
    ("api/v1/jobs", get(API_JOB_LIST, "pool={pool}").showing("Job.name")),
    ("api/v1/quotas", get(API_LIST, "tenant={slug}").showing("Tenant.slug")),
    ("api/v1/quotas", get(API_LIST, "pool={pool}").showing("Tenant.slug")),
    ("api/v1/prices", get(API_LIST).showing()),
    ("api/v1/credit", get(API_LIST).showing("Tenant.slug")),
    ("api/v1/transfers", get(API_TENANT, "tenant={slug}").showing("TransferRequest.reason")),
    (
        "api/v1/quota-requests",
        get(API_TENANT, "tenant={slug}").showing("QuotaChangeRequest.reason"),
    ),
    ("api/v1/pools/<slug:name>/profiles", get(API_POOL, "tenant={slug}").showing("Profile.name")),
    ("operate/audit/", get(CONSOLE, "actor={username}").showing("AuditRecord.subject")),
    ("api/v1/operate/audit", get(OPERATE, "actor={username}").showing("AuditRecord.subject")),
)
