"""Requests on tenants, a struct per resource, and the common fields of operators' requests."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, ClassVar, TypeAlias

import msgspec
from django.utils.translation import gettext as _
from msgspec import Meta

from evenshare_core.domain.entitlements import Mode
from evenshare_core.units import COUNT_MAX
from tenants.input.errors import FieldErrors, InvalidInputError
from tenants.input.readers import REASON_MAX, SLUG
from tenants.input.requests import Input, Request, read_request
from tenants.language import gettext_noop, number
from tenants.periods import QuotaTerms

SMALL_NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
SMALL_NAME_COMPLAINT = "Use 1 to 63 small letters, digits and hyphens."
SITE_ROLE_COMPLAINT = gettext_noop("Choose one of the roles.")
ROLE_COMPLAINT = gettext_noop("Choose viewer, member or manager.")
NOBODY = gettext_noop("There is no such person. Create the person first.")
NO_LOGIN = gettext_noop("No such login. Leave the name empty to get an invitation link.")
INITIALS_COMPLAINT = gettext_noop("Enter one or two letters or digits.")

Reason: TypeAlias = Annotated[
    str, Meta(max_length=REASON_MAX, description="Why, for the audit log."), Input(label="Reason")
]
SlugName: TypeAlias = Annotated[
    str,
    Meta(pattern=f"^{SLUG.pattern}$", description="A name."),
    Input(complaint="must be a name", advice="1 to 63 letters, digits, - and _."),
]


def _read_initials(given: Mapping[str, object], errors: FieldErrors) -> str:
    value = given.get("initials")
    if isinstance(value, str) and 1 <= len(value.strip()) <= 2 and value.strip().isalnum():
        return value.strip().upper()
    errors.add("initials", _(INITIALS_COMPLAINT))
    return ""


class TenantRequest(Request, frozen=True, kw_only=True):
    """A tenant to open; its slug never changes."""

    NOUN: ClassVar[str] = "a tenant"

    slug: Annotated[
        str,
        Meta(pattern=SMALL_NAME, description="The short name in URLs and commands."),
        Input(
            label="Short name",
            hint="Used in URLs and commands; it never changes.",
            complaint=SMALL_NAME_COMPLAINT,
        ),
    ]
    name: Annotated[
        str,
        Meta(min_length=1, max_length=120, description="Its display name."),
        Input(label="Name", hint="Display name.", complaint="Enter 1 to 120 characters."),
    ]
    initials: Annotated[
        str,
        Meta(max_length=2, description="One or two letters or digits, on the node map."),
        Input(label="Initials", hint="One or two letters, on the node map.", read=_read_initials),
    ]


class NewcomerRequest(Request, frozen=True, kw_only=True):
    """A login name that its person chooses, and their name.

    The login name is ASCII, because other scripts have letters that look like ASCII.
    """

    NOUN: ClassVar[str] = "a person"

    username: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9_.@+-]{1,150}$",
            description="The name with which the person signs in.",
        ),
        Input(label="Login name", complaint="Use up to 150 letters a to z, digits and @ . + - _"),
    ]
    first_name: Annotated[
        str, Meta(max_length=150, description="First name."), Input(label="First name")
    ] = ""
    last_name: Annotated[
        str, Meta(max_length=150, description="Last name."), Input(label="Last name")
    ] = ""


class PersonRequest(NewcomerRequest, frozen=True, kw_only=True):
    """A person who may log in; the first password is generated."""

    username: Annotated[
        str,
        Meta(pattern=r"^[\w.@+-]{1,150}$", description="The name with which the person signs in."),
        Input(label="Login name", complaint="Use up to 150 letters, digits and @ . + - _"),
    ]
    site_role: Annotated[
        str,
        Meta(max_length=10, description="Site role; empty: none."),
        Input(
            label="Role for the site",
            hint="Operators change everything here; finance and auditors read it.",
            complaint=SITE_ROLE_COMPLAINT,
        ),
    ] = ""


class RoleRequest(Request, frozen=True, kw_only=True):
    """A role in a tenant."""

    NOUN: ClassVar[str] = "a role"

    role: Annotated[
        str,
        Meta(min_length=1, max_length=10, description="Role in the tenant."),
        Input(label="Role", complaint=ROLE_COMPLAINT),
    ]


class MembershipRequest(RoleRequest, frozen=True, kw_only=True):
    """A person's role in a tenant."""

    NOUN: ClassVar[str] = "a membership"

    username: Annotated[
        str,
        Meta(min_length=1, max_length=150, description="The name with which the person signs in."),
        Input(label="Login name", complaint=NOBODY),
    ]


class InvitationRequest(RoleRequest, frozen=True, kw_only=True):
    """An invitation to a tenant, for a known person or for the holder of its link."""

    NOUN: ClassVar[str] = "an invitation"

    username: Annotated[
        str,
        Meta(max_length=150, description="Login name of a known person; empty: a new person."),
        Input(label="Login name (leave empty to get a link)", complaint=NO_LOGIN),
    ] = ""
    note: Annotated[
        str,
        Meta(max_length=100, description="Whom it is for, shown in the list."),
        Input(
            label="Note",
            hint="The person who gets the link.",
            complaint="Enter at most 100 characters.",
        ),
    ] = ""


class ReasonRequest(Request, frozen=True, kw_only=True):
    """A reason for the audit log."""

    NULL_IS_ABSENT: ClassVar[bool] = False

    reason: Reason = ""


MODES = tuple(mode.value for mode in Mode)
DRAFTS_MAX = 1000
GpuCount: TypeAlias = Annotated[int, Meta(ge=0, le=COUNT_MAX)]


class QuotaTermsRequest(Request, frozen=True, kw_only=True):
    """The terms of a quota, and their end."""

    NOUN: ClassVar[str] = "a quota"
    NULL_IS_ABSENT: ClassVar[bool] = False

    gpus: Annotated[
        GpuCount | None,
        Meta(description="GPUs of the quota; null ends it."),
        Input(advice="Use null to end the quota."),
    ]
    mode: Annotated[
        str,
        Meta(description="Whether it is lent while it is idle, and whether its tenant borrows."),
        Input(
            choices=MODES, complaint="is not a mode", advice=f"Choose one of {', '.join(MODES)}."
        ),
    ] = Mode.LEND_AND_BORROW.value
    borrow_limit: Annotated[
        GpuCount | None, Meta(description="Most GPUs that the tenant may borrow; null: no limit.")
    ] = None
    lend_limit: Annotated[
        GpuCount | None, Meta(description="Most idle GPUs that are lent; null: no limit.")
    ] = None
    until: Annotated[datetime | None, Meta(description="End of the quota, in pool time.")] = None

    @property
    def terms(self) -> QuotaTerms | None:
        """Return the terms, or None to end the quota."""
        if self.gpus is None:
            return None
        return QuotaTerms(self.gpus, self.mode, self.borrow_limit, self.lend_limit)


class QuotaRequest(QuotaTermsRequest, frozen=True, kw_only=True):
    """A quota of the tenant, pool and GPU type in the path."""

    since: Annotated[datetime | None, Meta(description="Start, in pool time; by default now.")] = (
        msgspec.field(default=None, name="from")
    )
    reason: Reason = ""


class QuotaDraft(QuotaTermsRequest, frozen=True, kw_only=True):
    """A quota in a draft of several."""

    tenant: SlugName
    gpu_type: SlugName


def _read_drafts(given: Mapping[str, object], errors: FieldErrors) -> tuple[QuotaDraft, ...]:
    rows = given.get("quotas")
    if not isinstance(rows, list) or not 1 <= len(rows) <= DRAFTS_MAX:
        errors.add(
            "quotas",
            _("must be a list of 1 to {most} quotas").format(most=number(DRAFTS_MAX)),
        )
        return ()
    drafts: dict[tuple[str, str], QuotaDraft] = {}
    for index, row in enumerate(rows):
        place = f"quotas[{index}]"
        try:
            draft = read_request(QuotaDraft, row)
        except InvalidInputError as error:
            errors.extend(one.inside(place) for one in error.errors)
            continue
        if (draft.tenant, draft.gpu_type) in drafts:
            errors.add(f"{place}.tenant", _("is given twice with this GPU type"))
        drafts[draft.tenant, draft.gpu_type] = draft
    return tuple(drafts.values())


class QuotaPreviewRequest(Request, frozen=True, kw_only=True):
    """Quotas of a pool to estimate."""

    NULL_IS_ABSENT: ClassVar[bool] = False

    pool: SlugName
    since: Annotated[
        datetime | None, Meta(description="Start of all quotas, in pool time; by default now.")
    ] = msgspec.field(default=None, name="from")
    quotas: Annotated[
        tuple[QuotaDraft, ...],
        Meta(min_length=1, max_length=DRAFTS_MAX, description="What shall differ."),
        Input(read=_read_drafts),
    ]
