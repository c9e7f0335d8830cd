"""The base of every view of the API: the caller, and the objects that the caller may see."""

from dataclasses import replace
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar

import structlog
from rest_framework.request import Request
from rest_framework.views import APIView

from tenants.api.problems import Problem, bad_field, not_there, not_yours
from tenants.audit import Actor
from tenants.models import Tenant, User
from tenants.permissions import Action, may_in_tenant
from tenants.scopes import site_scope
from tenants.selectors.access import Access, access_of
from tenants.selectors.tenants import find_tenant
from tenants.tokens import Scope, TokenBearer


def actor_of(person: User) -> Actor:
    """Return the actor of a change in this request, for its audit record."""
    request_id = structlog.contextvars.get_contextvars().get("request_id", "")
    return Actor(person, str(request_id))


class Who(StrEnum):
    """The people who may see a URL."""

    ANYBODY_SIGNED_IN = "list"  # lists only their own objects
    TENANT = "tenant"  # viewers of the tenant in the URL
    POOL = "pool"  # viewers of the pool in the URL
    SITE = "site"  # operators, finance and auditors


class ApiView(APIView):
    """A thin view: read the request, call one service or selector, write the response.

    `address` is relative to the API's root. `scopes` names the token scope of each method, `query`
    the allowed parameters, `who` the people who may see it.
    """

    address: ClassVar[str]
    who: ClassVar[Who]
    scopes: ClassVar[dict[str, str]] = {"GET": "read"}
    query: ClassVar[tuple[str, ...]] = ()
    http_method_names = ["get", "head", "post", "delete"]
    request: Request

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse unknown parameters; a typo must not widen a list."""
        super().initial(request, *args, **kwargs)
        if request.method not in self.allowed_methods:
            return  # Django answers 405.
        known = self.query if request.method in ("GET", "HEAD") else ()
        for name, values in request.query_params.lists():
            if name not in known:
                raise bad_field(
                    name[:80], "is not a parameter of this endpoint", self._parameters()
                )
            if len(values) > 1:
                raise bad_field(name, "is given twice")
            if "\x00" in values[0] or not values[0].isprintable() or len(values[0]) > 500:
                raise bad_field(name, "has invalid characters, or is too long")

    def _parameters(self) -> str:
        return f"Parameters: {', '.join(self.query)}." if self.query else "It has no parameters."

    @classmethod
    def scope_of(cls, method: str | None) -> str:
        """Return the scope that a token needs for a method; HEAD reads like GET."""
        return cls.scopes.get("GET" if method == "HEAD" else method or "", "")

    @cached_property
    def access(self) -> Access:
        """Return the caller's access at the time of this request, without revoked rights."""
        if isinstance(self.request.auth, TokenBearer):
            return self.request.auth.access
        with site_scope():
            return access_of(self.person)

    @property
    def person(self) -> User:
        """Return the signed-in person."""
        user = self.request.user
        if not isinstance(user, User):
            raise not_there()
        return user

    def tenant(
        self, slug: object, action: Action = Action.SEE_TENANT, *, seen: Action = Action.SEE_TENANT
    ) -> Tenant:
        """Return the tenant of this slug if the caller may do `action` in it.

        The tenant is visible to callers who may do `seen`.

        Raises:
            Problem: 404 if it is not visible, 403 if it is but `action` is not allowed.
        """
        membership = self.access.membership_named(slug)
        if membership is not None:
            # Only these fields are loaded now; reading another field would load it with a query.
            known = [membership.tenant_id, membership.slug, membership.name]
            tenant: Tenant | None = Tenant.from_db("default", ["id", "slug", "name"], known)
        elif isinstance(slug, str) and 0 < len(slug) <= 63 and slug.isprintable():
            with site_scope():
                tenant = find_tenant(slug)
        else:
            tenant = None
        if tenant is None or not may_in_tenant(self.access, seen, tenant.pk):
            raise not_there()
        self.require(action, tenant.pk)
        return tenant

    def own_tenant(self, slug: object, action: Action) -> Tenant:
        """Return a tenant named in a body like `tenant`, but raise 400, not 404, if not visible."""
        try:
            return self.tenant(slug, action)
        except Problem as problem:
            if problem.status_code != 404:
                raise
            raise not_yours() from problem

    def require(self, action: Action, tenant_id: int) -> None:
        """Check the caller's role in a visible tenant.

        Raises:
            Problem: 403.
        """
        if not may_in_tenant(self.access, action, tenant_id):
            raise Problem("role", f"Your role in this tenant does not cover {action.value}.")

    def require_scope(self, action: Action, tenant_id: int) -> None:
        """Check the token of a caller who may do `action` only by the role for the site.

        Raises:
            Problem: 403, without the scope `operate`.
        """
        used = self.request.auth
        if not isinstance(used, TokenBearer) or Scope.OPERATE.value in used.token.scopes:
            return
        if not may_in_tenant(replace(self.access, site_role=""), action, tenant_id):
            raise Problem("scope", f"The token lacks the scope {Scope.OPERATE.value}.")

    def filtered_tenant(self, seen: Action = Action.SEE_TENANT) -> Tenant | None:
        """Return the tenant of the query's `tenant`, or None if it is not given.

        The tenant is visible to callers who may do `seen`.
        """
        slug = self.request.query_params.get("tenant", "")
        return self.tenant(slug, seen, seen=seen) if slug else None
