"""The generation of the API's description: authentication, and the format of refusals."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema

from tenants.api.schemas import ProblemBody

# Statuses that any request may get.
ALWAYS = ("400", "429", "503")


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # untyped base
    """`Authorization: Bearer es_...`."""

    target_class = "tenants.api.auth.BearerAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        del auto_schema
        return {"type": "http", "scheme": "bearer"}


class BrowserScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # untyped base
    """The portal's own session."""

    target_class = "tenants.api.auth.BrowserAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        del auto_schema
        return {"type": "apiKey", "in": "cookie", "name": "evenshare_session"}


class EvenshareSchema(AutoSchema):
    """Adds the problems to every operation, so that every response is documented."""

    def get_operation(self, *args: Any, **kwargs: Any) -> Any:
        operation = super().get_operation(*args, **kwargs)
        if operation is not None:
            problem = self._problem()
            for status in self._refusals():
                operation["responses"].setdefault(status, problem)
        return operation

    def _refusals(self) -> list[str]:
        statuses = [*ALWAYS, "401", "403"]
        if "{" in self.path or "pool" in self._query() or "tenant" in self._query():
            statuses.append("404")
        if self.method in ("POST", "PUT", "PATCH", "DELETE"):
            statuses += ["409", "413", "415", "422"]
        more = getattr(self.view, "refusals", None)
        return [*statuses, *more(self.method)] if more is not None else statuses

    def _query(self) -> tuple[str, ...]:
        return getattr(self.view, "query", ())

    def _problem(self) -> dict[str, Any]:
        component = self.resolve_serializer(ProblemBody, "response")
        return {
            "description": "Refused.",
            "content": {"application/problem+json": {"schema": component.ref}},
        }

    def get_tags(self) -> list[str]:
        """Group operations by the first part of their path."""
        return [self.path.removeprefix("/api/v1/").partition("/")[0]]
