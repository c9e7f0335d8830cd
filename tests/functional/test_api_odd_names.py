"""Test the published schema on pools, tenants and jobs in rare states.

`schemathesis` gets values of the odd stage for URLs, queries and bodies. It sends requests as a
member of the tenant, its manager and an operator. The number of examples is limited: the requests
are the same each time except in `make soak`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import schemathesis
from django.core.wsgi import get_wsgi_application
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pytest_django import Settings
from schemathesis.core.result import Ok

from tests.functional.api_stage import PLAIN
from tests.functional.odd_stage import OddStage, odd_stage
from tests.functional.test_api_schema import CHECKS, MODES
from tests.stages import staged

there = staged(odd_stage)

# Examples per operation and role, in `make test-rest` and in `make soak`.
EXAMPLES, SOAK_EXAMPLES = 3, 40
ASKING = ("owner", "manager", "operator")
OF_ONE_STATE = {
    "name": "pool", "pool": "pool", "slug": "slug", "tenant": "slug", "uid": "job", "job": "job",
    "number": "round", "round": "round", "node": "node", "gpu_type": "gpu_type",
    "profile": "profile", "username": "username", "to": "slug",
}  # fmt: skip


def named(values: Any, words: dict[str, str]) -> Any:
    """Replace the values of a request by those of a state, if the state has them."""
    known = {key: words[word] for key, word in OF_ONE_STATE.items() if word in words}
    known["book"] = "main"
    if not isinstance(values, dict):
        return values
    return {
        key: type(value)(known[key]) if key in known and isinstance(value, str | int) else value
        for key, value in values.items()
        if not (key in known and isinstance(value, int) and not known[key].isdigit())
    }


def tag_of(there: OddStage, path: str, words: dict[str, str]) -> str:
    """Return the ETag for an operator's edit; "" if there is none."""
    kind = path.removeprefix("/api/v1/operate/").split("/")[0]
    address = f"{kind}/{words['pool']}" if kind == "pools" else f"{kind}?pool={words['pool']}"
    answer = there.client("operator", api=True).get(f"/api/v1/operate/{address}")
    return str(answer.headers.get("ETag", ""))


class Attack:
    """Sends examples of all operations, and stores the answers and failures."""

    def __init__(self, there: OddStage, examples: int) -> None:
        self.there, self.examples = there, examples
        self.statuses: Counter[int] = Counter()
        self.wrong: list[str] = []

    def go(self) -> None:
        """Request every operation as each requester."""
        schema = schemathesis.openapi.from_wsgi("/api/v1/schema", get_wsgi_application())
        for found in schema.get_all_operations():
            assert isinstance(found, Ok)
            operation = found.ok()
            is_operators = "/operate/" in operation.path
            for role in ("operator",) if is_operators else ASKING:
                try:
                    self._ask(operation, role)
                except BaseExceptionGroup as error:
                    self.wrong += [f"{role}: {one}" for one in error.exceptions]

    def _ask(self, operation: Any, role: str) -> None:
        @hypothesis_settings(
            max_examples=self.examples,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(
            case=st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in MODES)),
            words=st.sampled_from(list(self.there.states.values())),
            has_words=st.sampled_from([True, True, True, False]),
        )
        def once(case: Any, words: dict[str, str], has_words: bool) -> None:
            headers = {"Authorization": f"Bearer {self.there.secrets[role]}", "Host": "localhost"}
            if has_words:
                for part in ("path_parameters", "query", "body"):
                    setattr(case, part, named(getattr(case, part), words))
                if case.method != "GET" and "/operate/" in operation.path:
                    headers["If-Match"] = tag_of(self.there, operation.path, words)
            answer = case.call_and_validate(headers=headers | PLAIN, checks=CHECKS)
            self.statuses[answer.status_code] += 1

        once()


class TestOperations:
    def test_match_schema_with_odd_states(self, there: OddStage, settings: Settings) -> None:
        self.attack(there, settings, EXAMPLES)

    @pytest.mark.soak
    def test_match_schema_with_odd_states_in_long_run(
        self, there: OddStage, settings: Settings
    ) -> None:
        self.attack(there, settings, SOAK_EXAMPLES)

    def attack(self, there: OddStage, settings: Settings, examples: int) -> None:
        settings.SUBMISSIONS_PER_S = 10_000
        attack = Attack(there, examples)
        attack.go()
        assert not attack.wrong, "\n".join(attack.wrong)
        # Most requests name existing objects, because a request for a missing one proves little.
        assert attack.statuses[200] > sum(attack.statuses.values()) / 5, attack.statuses
