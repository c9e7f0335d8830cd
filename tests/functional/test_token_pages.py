"""One's own tokens on a page: made with the password, shown once, revoked, and audited."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from tenants.models import ApiToken, AuditRecord, User
from tests.functional.visitors import Town, town

PASSWORD = "correct horse battery"
PAGE = "/account/tokens/"
FORM = {"name": "workstation", "days": "7", "scopes": ["read"], "old_password": PASSWORD}


@pytest.fixture
def there(db: None) -> Town:  # noqa: ARG001 - the fixture is what is wanted of it
    made = town()
    for name, client in (("ada", made.owner), ("eve", made.operator)):
        user = User.objects.get(username=name)
        user.set_password(PASSWORD)
        user.save()
        client.force_login(user)
    return made


def secret_in(answer: Any) -> str:
    assert answer.status_code == 200, answer.content.decode()
    found = re.search(r"es_[\w-]{40,}", answer.content.decode())
    assert found is not None
    return found[0]


def api(secret: str, path: str = "pools") -> int:
    headers = {"Authorization": f"Bearer {secret}"}
    return Client().get(f"/api/v1/{path}", headers=headers).status_code


class TestATokenOfAPage:
    def test_is_shown_once_and_works_within_its_scopes(self, there: Town) -> None:
        answer = there.owner.post(PAGE, FORM)
        secret = secret_in(answer)
        assert "no-store" in answer["Cache-Control"]
        assert (api(secret), api(secret, "jobs")) == (200, 403)
        assert secret not in there.owner.get(PAGE).content.decode()
        record = AuditRecord.objects.get(action="token.created")
        assert record.after == {"name": "workstation", "scopes": ["read"], "days": 7}
        assert secret not in str(record.__dict__)
        assert "made an API token" in there.operator.get("/operate/audit/").content.decode()

    def test_is_revoked_with_one_press(self, there: Town) -> None:
        secret = secret_in(there.owner.post(PAGE, FORM))
        token = ApiToken.objects.get()
        page = there.owner.get(PAGE).content.decode()
        assert f'action="{PAGE}{token.uid}/revoke/"' in page
        assert there.owner.post(f"{PAGE}{token.uid}/revoke/").status_code == 302
        assert api(secret) == 401
        assert AuditRecord.objects.filter(action="token.revoked").count() == 1
        assert "workstation" not in there.owner.get(PAGE).content.decode()

    def test_of_somebody_else_is_not_there(self, there: Town) -> None:
        secret = secret_in(there.owner.post(PAGE, FORM))
        token = ApiToken.objects.get()
        assert there.mate.post(f"{PAGE}{token.uid}/revoke/").status_code == 404
        assert "workstation" not in there.mate.get(PAGE).content.decode()
        assert api(secret) == 200

    @pytest.mark.parametrize(
        ("change", "complaint"),
        [
            ({"old_password": "wrong password"}, "This is not your present password."),
            ({"old_password": ""}, "Write your present password."),
            ({"name": ""}, "Give it a name"),
            ({"days": "91"}, "a whole number from 1 to 90"),
            ({"days": "-1"}, "a whole number from 1 to 90"),
            ({"scopes": []}, "Choose at least one"),
            ({"scopes": ["everything"]}, "Choose at least one"),
            ({"scopes": ["operate"]}, "for operators"),
        ],
    )
    def test_is_refused_beside_the_field(
        self, there: Town, change: dict[str, Any], complaint: str
    ) -> None:
        answer = there.owner.post(PAGE, FORM | change)
        assert answer.status_code == 422
        assert complaint in answer.content.decode()
        assert not ApiToken.objects.exists()

    def test_is_shown_as_it_was_typed_where_it_is_refused(self, there: Town) -> None:
        name, days = "x" * 64, "9000"
        page = there.owner.post(PAGE, FORM | {"name": name, "days": days}).content.decode()
        for typed in (name, days):
            assert f'value="{typed}"' in page

    def test_may_operate_where_its_person_does(self, there: Town) -> None:
        assert 'value="operate"' not in there.owner.get(PAGE).content.decode()
        assert 'value="operate"' in there.operator.get(PAGE).content.decode()
        secret = secret_in(there.operator.post(PAGE, FORM | {"scopes": ["operate", "read"]}))
        assert api(secret, "operate/tenants") == 200

    def test_wants_the_forms_own_proof(self, there: Town) -> None:
        strict = Client(enforce_csrf_checks=True)
        strict.force_login(User.objects.get(username="ada"))
        assert strict.post(PAGE, FORM).status_code == 403
        assert there.owner.get(PAGE).status_code == 200
        assert not ApiToken.objects.exists()
