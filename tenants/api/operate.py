"""The base of the operator's REST API: roles, and conditional edits (ETag and If-Match)."""

from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from typing import Any, ClassVar

import msgspec
from django.core.exceptions import PermissionDenied
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.base import ApiView, Who, actor_of
from tenants.api.problems import Problem, fields_only, not_there
from tenants.audit import Actor
from tenants.input.errors import InvalidInputError
from tenants.input.requests import R, read_request, request_fields
from tenants.models import User
from tenants.permissions import Action, may_on_site
from tenants.refusals import ROLE_GONE, record_refusal
from tenants.tokens import Scope

EDITS = ("POST", "PUT", "PATCH", "DELETE")
IF_MATCH = OpenApiParameter(
    "If-Match",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    required=True,
    description="The ETag of the GET on which the edit is based. Missing: 428; outdated: 412.",
)


class StaleError(Problem):
    """The resource changed since the caller's GET; `etag` is its present one."""

    def __init__(self, etag: str) -> None:
        super().__init__("stale")
        self.etag = etag


class OperateView(ApiView):
    """A view for site roles: operators may write, finance and auditors may read, others get 404.

    `preconditions` names the methods that need If-Match.
    """

    who = Who.SITE
    http_method_names = ["get", "head", "post", "put", "patch", "delete"]
    scopes: ClassVar[dict[str, str]] = {
        "GET": Scope.READ.value,
        **dict.fromkeys(EDITS, Scope.OPERATE.value),
    }
    preconditions: ClassVar[tuple[str, ...]] = EDITS
    edit_action: ClassVar[Action] = Action.OPERATE

    def refusals(self, method: str) -> tuple[str, ...]:
        """Return a method's additional statuses, for the schema."""
        return ("404", "412", "428") if method in self.preconditions else ("404",)

    def check_permissions(self, request: Request) -> None:
        """Check the role first: for users without a site role the URL does not exist."""
        try:
            self._check_role(request)
        except Problem as refused:
            if request.method in EDITS and isinstance(request.user, User):
                role = self.access.site_role or "none"
                why = f"Site role: {role}."
                if refused.reason_code == "scope":
                    why = str(refused.detail)
                record_refusal(self.actor, f"{request.method} {request.path}", why)
            raise

    def _check_role(self, request: Request) -> None:
        role = self.access.site_role if isinstance(request.user, User) else ""
        if isinstance(request.user, User) and not may_on_site(role, Action.SEE_SITE):
            raise not_there()
        super().check_permissions(request)
        if request.method in EDITS and not may_on_site(role, self.edit_action):
            raise Problem("role", "Your site role is read-only.")

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse an edit without If-Match."""
        super().initial(request, *args, **kwargs)
        if request.method not in self.allowed_methods or request.method not in self.preconditions:
            return
        if request.headers.get("If-Match", "").strip() in ("", "*"):
            raise Problem("if_match_required")

    def handle_exception(self, exc: Exception) -> Response:
        """Return a refused change's response: errors by field, or the present ETag if stale."""
        problem = refusal(exc) if isinstance(exc, InvalidInputError) else exc
        if isinstance(exc, PermissionDenied):
            record_refusal(self.actor, f"{self.request.method} {self.request.path}", ROLE_GONE)
        response = super().handle_exception(problem)
        if isinstance(problem, StaleError):
            response["ETag"] = problem.etag
        return response

    def require_match(self, present: str) -> None:
        """Refuse an edit of an outdated state; call it with the rows locked.

        Raises:
            StaleError: none of the request's ETags is the present one.
        """
        sent = self.request.headers.get("If-Match", "").split(",")
        if present not in {_as_made(tag.strip()) for tag in sent}:
            raise StaleError(present)

    @property
    def actor(self) -> Actor:
        """Return the actor of a change, for its audit record."""
        return actor_of(self.person)


def refusal(error: InvalidInputError) -> Problem:
    """Return the response to a refused change; nothing was changed."""
    if error.is_conflict:
        return Problem("conflict", " ".join(error.by_field.values()))
    errors = [replace(one, field=one.field[:80]) for one in error.errors]
    return Problem("invalid", "Nothing was changed: fields are invalid.", errors)


def request_of(request: type[R], data: Any) -> R:
    """Return the request of a body.

    Raises:
        Problem: it has unknown fields, or is no object.
        InvalidInputError: with all errors of fields.
    """
    return read_request(request, fields_only(data, tuple(request_fields(request))))


def etag_of(state: object) -> str:
    """Return the strong ETag of a state: of editable values, not of changing measurements."""
    encoded = msgspec.json.encode(state, order="sorted")
    return f'"{sha256(encoded).hexdigest()[:32]}"'


def _as_made(tag: str) -> str:
    """Return an ETag without the prefix `W/` and suffix `-gzip` that compressing proxies add."""
    tag = tag.removeprefix("W/")
    for suffix in ("gzip", "br", "zstd"):
        if tag.endswith(f'-{suffix}"'):
            return tag.removesuffix(f'-{suffix}"') + '"'
    return tag


def answer(body: Any, etag: str, status: int = 200) -> Response:
    """Return a response with the ETag of its content."""
    return Response(body, status=status, headers={"ETag": etag})


def page(rows: Iterable[Any]) -> dict[str, Any]:
    """Return a list that has only one page."""
    return {"results": list(rows), "next": None}
