"""Provide a small site for tests of the API: a pool, two tenants, people with tokens."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from django.test import Client
from django.utils import timezone

from scheduling.models import Job
from tenants.models import Membership, User
from tenants.tokens import Scope, create_token
from tests.factories import Cluster, cluster

PASSWORD = "correct horse battery"
ROLES = Membership.Role


# For clients that do not decompress answers.
PLAIN = {"Accept-Encoding": "identity"}


@dataclass
class ApiStage:
    """Tenants `aa` and `bb` share a pool; `ada` is a member of aa, `bob` of bb."""

    cluster: Cluster
    people: dict[str, User] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)

    @property
    def pool(self) -> str:
        return self.cluster.pool.name

    def person(self, name: str, tenant: str = "", role: str = "", **fields: Any) -> User:
        """Create a person with a membership and a token of all scopes."""
        user = User.objects.create(username=name, **fields)
        if tenant:
            Membership.objects.create(user=user, tenant=self.cluster.tenants[tenant], role=role)
        self.people[name] = user
        self.secrets[name] = self.token(name, *Scope)
        return user

    def token(self, name: str, *scopes: Scope) -> str:
        """Create a token with some scopes; return its secret."""
        user = self.people[name]
        return create_token(user=user, name="t", scopes=scopes, days=1, now=timezone.now())[1]

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        as_: str = "ada",
        content_type: str = "application/json",
        **headers: str,
    ) -> Any:
        """Call the API; `body` is JSON unless it is bytes.

        Server errors are returned as answers.
        """
        client = Client(raise_request_exception=False)
        if as_:
            headers.setdefault("Authorization", f"Bearer {self.secrets.get(as_, as_)}")
        content: dict[str, Any] = {}
        if body is not None:
            content = {
                "data": body if isinstance(body, bytes) else json.dumps(body),
                "content_type": content_type,
            }
        return client.generic(method, f"/api/v1/{path}", headers=headers, **content)

    def get(self, path: str, **more: Any) -> Any:
        return self.call("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> Any:
        return self.call("POST", path, body, **more)

    def spec(self, **more: Any) -> dict[str, Any]:
        return {"pool": self.pool, "gpus": 2, "command": ["python", "x.py"], **more}

    def job(self, tenant: str = "aa", **fields: Any) -> Job:
        return self.cluster.submit(tenant, 2, 60, **fields)


def api_stage(**pool: Any) -> ApiStage:
    stage = ApiStage(cluster({"aa": 3, "bb": 5}, **pool))
    stage.person("ada", "aa", ROLES.MEMBER)
    stage.person("bob", "bb", ROLES.MEMBER)
    return stage
