"""Sign-in at an OpenID Connect provider, connected accounts, and answers that prove no identity."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.conf import LazySettings
from django.test import Client
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from joserfc.jws import JWSRegistry

from portal.account.views.provider_client import _client
from tenants.models import AuditRecord, User
from tests.functional.visitors import signed_in
from tests.openid_provider import Provider, running_provider, trust

pytestmark = pytest.mark.django_db
CLIENT = "evenshare"


@pytest.fixture(scope="module")
def running() -> Iterator[Provider]:
    with running_provider() as provider:
        yield provider


@pytest.fixture
def provider(running: Provider, settings: LazySettings) -> Provider:
    trust(settings, running.issuer, "http://testserver")
    _client.cache_clear()
    running.metadata, running.spoil, running.userinfo = {}, None, None
    running.add("17", preferred_username="ines", given_name="Ines", family_name="Ito")
    return running


def identity_of(person: User) -> str | None:
    return User.objects.get(pk=person.pk).identity


def messages_of(client: Client) -> str:
    return str(client.get("/login/").content.decode())


class TestSignIn:
    def test_creates_the_person_once(self, provider: Provider) -> None:
        for _ in range(2):
            client = Client()
            answer = client.get(provider.answer(client, "17", begin="/login/openid/?next=/pools/"))
            assert answer.headers["Location"] == "/pools/"
            person = User.objects.get(username="ines")
            assert client.session["_auth_user_id"] == str(person.pk)
            # The session of the attempt was short, this one is not.
            assert "_session_expiry" not in client.session
        assert person.identity == f"{provider.issuer} 17"
        assert person.get_full_name() == "Ines Ito"
        assert not person.has_usable_password()
        assert not person.site_role
        assert [record.action for record in AuditRecord.objects.all()] == ["person.created"]

    def test_follows_the_subject_and_not_the_name(self, provider: Provider) -> None:
        client = Client()
        client.get(provider.answer(client, "17"))
        provider.add("17", preferred_username="renamed")
        provider.add("18", preferred_username="ines")
        again = Client()
        again.get(provider.answer(again, "17"))
        assert again.session["_auth_user_id"] == client.session["_auth_user_id"]
        other = Client()
        answer = other.get(provider.answer(other, "18"), follow=True)
        assert "The name ines is taken." in answer.content.decode()
        assert "_auth_user_id" not in other.session

    def test_reads_names_from_the_userinfo_endpoint(
        self, provider: Provider, settings: LazySettings
    ) -> None:
        settings.OIDC_USERNAME_CLAIM = "nickname"
        provider.userinfo = {"sub": "17", "nickname": "nines"}
        client = Client()
        client.get(provider.answer(client, "17"))
        assert User.objects.get(identity__endswith=" 17").username == "nines"

    def test_refuses_the_userinfo_of_another_person(
        self, provider: Provider, settings: LazySettings
    ) -> None:
        settings.OIDC_USERNAME_CLAIM = "nickname"
        provider.userinfo = {"sub": "1", "nickname": "admin"}
        assert_refused(provider, "17")

    @pytest.mark.parametrize("name", ["", "a b", "x" * 151, "ïnes", "in\u0000es"])
    def test_refuses_a_name_that_is_none(self, provider: Provider, name: str) -> None:
        provider.add("19", preferred_username=name)
        client = Client()
        client.get(provider.answer(client, "19"))
        assert not User.objects.exists()

    def test_refuses_a_deactivated_person(self, provider: Provider) -> None:
        User.objects.create(username="ines", identity=f"{provider.issuer} 17", is_active=False)
        client = Client()
        answer = client.get(provider.answer(client, "17"), follow=True)
        assert "This account is deactivated." in answer.content.decode()
        assert "_auth_user_id" not in client.session

    @pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "/\\evil"])
    def test_returns_only_to_this_site(self, provider: Provider, target: str) -> None:
        client = Client()
        path = provider.answer(client, "17", begin=f"/login/openid/?next={target}")
        assert client.get(path).headers["Location"] == "/"

    def test_is_missing_without_a_provider(self) -> None:
        client = Client()
        assert client.get("/login/openid/").status_code == 404
        assert client.get("/login/openid/callback/").status_code == 404
        assert client.post("/account/openid/").status_code == 404
        assert "openid" not in messages_of(client)


def assert_refused(provider: Provider, subject: str) -> None:
    """Assert that an answer of the provider is refused, and that the page states this."""
    client = Client()
    answer = client.get(provider.answer(client, subject), follow=True)
    assert "The sign-in with Example University failed." in answer.content.decode()
    assert "_auth_user_id" not in client.session
    assert not User.objects.exists()


class TestForgery:
    """Answers that a stranger, another client or another provider could make."""

    @pytest.mark.parametrize(
        "change",
        [
            {"iss": "http://127.0.0.1:1"},
            {"aud": "another-client"},
            {"aud": [CLIENT, "another"], "azp": "another"},
            {"nonce": "another"},
            {"nonce": None},
            {"sub": ""},
            {"sub": None},
            {"sub": 17},
            {"sub": "1" * 256},
            {"sub": "1\n"},
            {"exp": 1_000_000_000},
            {"exp": None},
        ],
        ids=str,
    )
    def test_claims_are_checked(self, provider: Provider, change: dict[str, Any]) -> None:
        key = RSAKey.generate_key(2048, {"kid": "own", "use": "sig"})
        provider.metadata = {"jwks": {"keys": [key.as_dict(private=False)]}}
        provider.spoil = lambda token: signed(key, claims_of(token) | change)
        assert_refused(provider, "17")

    def test_valid_token_of_the_same_key_is_accepted(self, provider: Provider) -> None:
        key = RSAKey.generate_key(2048, {"kid": "own", "use": "sig"})
        provider.metadata = {"jwks": {"keys": [key.as_dict(private=False)]}}
        provider.spoil = lambda token: signed(key, claims_of(token))
        client = Client()
        client.get(provider.answer(client, "17"))
        assert User.objects.get().username == "ines"

    def test_signature_is_checked(self, provider: Provider) -> None:
        key = RSAKey.generate_key(2048, {"kid": "own"})
        provider.spoil = lambda token: signed(key, claims_of(token))
        assert_refused(provider, "17")

    @pytest.mark.parametrize("algorithm", ["none", "HS256"])
    def test_algorithm_needs_the_private_key(self, provider: Provider, algorithm: str) -> None:
        provider.metadata = {"id_token_signing_alg_values_supported": ["RS256", "HS256", "none"]}
        key = OctKey.import_key("a secret of the client")
        provider.spoil = lambda token: jwt.encode(
            {"alg": algorithm}, claims_of(token), key,
            registry=JWSRegistry(algorithms=["none", "HS256"]),
        )  # fmt: skip
        assert_refused(provider, "17")

    def test_metadata_must_be_the_issuers(self, provider: Provider) -> None:
        provider.metadata = {"issuer": "https://evil.example"}
        client = Client()
        answer = client.get("/login/openid/", follow=True)
        assert "Example University does not answer." in answer.content.decode()

    def test_state_is_the_browsers_own_and_is_used_once(self, provider: Provider) -> None:
        first, second = Client(), Client()
        path = provider.answer(first, "17")
        assert "_auth_user_id" not in Client().get(path).wsgi_request.session
        second.get("/login/openid/")
        second.get(path)
        assert "_auth_user_id" not in second.session
        first.get(path)
        assert "_auth_user_id" in first.session
        first.logout()
        first.get(path)
        assert "_auth_user_id" not in first.session

    def test_request_has_state_nonce_and_challenge(self, provider: Provider) -> None:
        url = Client().get("/login/openid/").headers["Location"]
        asked = {name: value for name, (value,) in parse_qs(urlsplit(url).query).items()}
        assert asked.keys() >= {"state", "nonce", "code_challenge"}
        assert asked["code_challenge_method"] == "S256"
        assert asked["response_type"] == "code"
        assert asked["redirect_uri"] == "http://testserver/login/openid/callback/"

    @pytest.mark.parametrize("query", ["", "?code=x", "?state=x&code=y", "?error=access_denied"])
    def test_answer_without_a_request_is_refused(self, provider: Provider, query: str) -> None:
        client = Client()
        answer = client.get(f"/login/openid/callback/{query}", follow=True)
        assert "The sign-in with Example University failed." in answer.content.decode()

    def test_refusal_by_the_person_is_shown(self, provider: Provider) -> None:
        assert_refused(provider, "")


class TestUnreachableProvider:
    def test_is_shown_on_the_login_page(self, provider: Provider, settings: LazySettings) -> None:
        settings.OIDC_ISSUER = "http://127.0.0.1:9"
        answer = Client().get("/login/openid/", follow=True)
        assert "Example University does not answer. Try again." in answer.content.decode()


class TestAccount:
    def test_is_connected_after_confirmation(self, provider: Provider) -> None:
        person = User.objects.create_user("ada", password="a long enough password")
        client = signed_in(person)
        answer = client.get(provider.answer(client, "17"))
        assert answer.headers["Location"] == "/account/"
        # A link of another site could have brought the browser here, so nothing has changed.
        assert identity_of(person) is None
        client.post("/account/openid/", {"do": "connect"})
        assert identity_of(person) == f"{provider.issuer} 17"
        fresh_client = Client()
        fresh_client.get(provider.answer(fresh_client, "17"))
        assert fresh_client.session["_auth_user_id"] == str(person.pk)
        client.post("/account/openid/", {"do": "disconnect"})
        assert identity_of(person) is None
        actions = AuditRecord.objects.order_by("pk").values_list("action", flat=True)
        assert list(actions) == ["person.connected", "person.disconnected"]

    def test_confirmation_without_an_offer_changes_nothing(self, provider: Provider) -> None:
        person = User.objects.create_user("ada", password="a long enough password")
        signed_in(person).post("/account/openid/", {"do": "connect"})
        assert identity_of(person) is None

    def test_keeps_its_only_way_to_sign_in(self, provider: Provider) -> None:
        client = Client()
        client.get(provider.answer(client, "17"))
        client.post("/account/openid/", {"do": "disconnect"})
        assert User.objects.get().identity == f"{provider.issuer} 17"

    def test_cannot_take_the_identity_of_another(self, provider: Provider) -> None:
        other = Client()
        other.get(provider.answer(other, "17"))
        person = User.objects.create_user("ada", password="a long enough password")
        client = signed_in(person)
        client.get(provider.answer(client, "17"))
        answer = client.post("/account/openid/", {"do": "connect"}, follow=True)
        assert "This identity belongs to another account." in answer.content.decode()
        assert identity_of(person) is None

    def test_with_its_name_is_connected_only_if_the_site_says_so(
        self, provider: Provider, settings: LazySettings
    ) -> None:
        person = User.objects.create_user("ines", password="a long enough password")
        client = Client()
        client.get(provider.answer(client, "17"))
        assert "_auth_user_id" not in client.session
        settings.OIDC_LINKS_NAMES = True
        client.get(provider.answer(client, "17"))
        assert client.session["_auth_user_id"] == str(person.pk)
        # Another identity with this name does not get the account.
        provider.add("18", preferred_username="ines")
        other = Client()
        other.get(provider.answer(other, "18"))
        assert "_auth_user_id" not in other.session


class TestToken:
    FORM = {"name": "ci", "days": "30", "scopes": ["read"]}

    def test_needs_a_recent_sign_in_instead_of_a_password(
        self, provider: Provider, settings: LazySettings
    ) -> None:
        client = Client()
        client.get(provider.answer(client, "17"))
        assert client.post("/account/tokens/", self.FORM).status_code == 200
        session = client.session
        session["openid_at"] = time.time() - 901
        session.save()
        answer = client.post("/account/tokens/", self.FORM)
        assert answer.status_code == 422
        page = answer.content.decode()
        assert "log in with Example University again first" in page
        assert 'href="/login/openid/?next=/account/tokens/"' in page
        assert 'name="old_password"' not in page
        path = provider.answer(client, "17", begin="/login/openid/?next=/account/tokens/")
        assert client.get(path).headers["Location"] == "/account/tokens/"
        assert client.post("/account/tokens/", self.FORM).status_code == 200
        # A site that no longer has a provider names another way.
        settings.OIDC_ISSUER = ""
        session = client.session
        session["openid_at"] = time.time() - 901
        session.save()
        answer = client.post("/account/tokens/", self.FORM)
        assert answer.status_code == 422
        assert "manage.py changepassword ines" in answer.content.decode()


def claims_of(token: str) -> dict[str, Any]:
    """Return the claims of a token, without a check."""
    part = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return claims


def signed(key: RSAKey, claims: dict[str, Any]) -> str:
    """Return a token with these claims; None leaves a claim out."""
    kept = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode({"alg": "RS256", "kid": key.kid}, kept, key)
