"""The site's provider of OpenID Connect: the redirect to it, and what its answer proves.

Authlib checks state, nonce, PKCE, signature, audience and expiry. This module adds what it leaves
open: the issuer in the provider's metadata, and algorithms that need the provider's private key.
Views import it at the first sign-in, because Authlib takes 25 MB.
"""

import re
from functools import cache
from typing import Any

import structlog
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.django_client import OAuth
from django.conf import settings
from django.http import HttpRequest, HttpResponseRedirect
from django.urls import reverse
from joserfc.errors import JoseError

from portal.account.views.provider import ProviderError
from tenants.services.identities import ProvenIdentity

TIMEOUT_S = 10
# The time from the login page to the provider's answer.
ATTEMPT_S = 900
SUBJECT = re.compile(r"[ -~]{1,255}")
# All that requests, Authlib and joserfc raise for an answer that is missing or malformed.
FAULTS = (OSError, ValueError, TypeError, LookupError, RuntimeError, AuthlibBaseError, JoseError)
log = structlog.get_logger(__name__)


def redirect_to_provider(request: HttpRequest) -> HttpResponseRedirect:
    """Return the redirect to the provider's page; the session keeps state, nonce and verifier.

    Raises:
        ProviderError: its metadata cannot be read.
    """
    callback = f"{settings.SITE_URL}{reverse('openid-callback')}"
    if not request.user.is_authenticated:
        request.session.set_expiry(ATTEMPT_S)
    try:
        answer: HttpResponseRedirect = _provider().authorize_redirect(request, callback)
    except FAULTS as error:
        raise _fault(error) from error
    return answer


def proven_identity(request: HttpRequest) -> ProvenIdentity:
    """Return the identity that the provider's redirect back to this portal proves.

    Raises:
        ProviderError: it proves no identity, for example with the state of another browser.
    """
    try:
        claims = _claims(request)
        subject = claims["sub"]
        if not (isinstance(subject, str) and SUBJECT.fullmatch(subject)):
            raise ValueError("the subject is not 1 to 255 printable characters of ASCII")
    except FAULTS as error:
        raise _fault(error) from error
    return ProvenIdentity(
        identity=f"{settings.OIDC_ISSUER} {subject}",
        username=_text(claims.get(settings.OIDC_USERNAME_CLAIM)),
        first_name=_text(claims.get("given_name")),
        last_name=_text(claims.get("family_name")),
    )


def _claims(request: HttpRequest) -> dict[str, Any]:
    """Return the claims of the ID token, with those of the userinfo endpoint if names lack."""
    provider = _provider()
    token = provider.authorize_access_token(request)
    claims: dict[str, Any] = dict(token["userinfo"])
    if settings.OIDC_USERNAME_CLAIM not in claims:
        more = provider.userinfo(token=token)
        if more["sub"] != claims["sub"]:
            raise ValueError("the userinfo endpoint describes another person")
        claims = more | claims
    return claims


def _text(claim: object) -> str:
    return claim if isinstance(claim, str) else ""


def _provider() -> Any:
    """Return Authlib's client of the provider, with its metadata.

    Raises:
        ValueError: the metadata is another issuer's.
    """
    client = _client(settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET)
    metadata = client.load_server_metadata()
    if metadata.get("issuer") != settings.OIDC_ISSUER:
        metadata.clear()
        raise ValueError("the metadata names another issuer")
    offered = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
    metadata["id_token_signing_alg_values_supported"] = [
        algorithm for algorithm in offered if algorithm in settings.OIDC_ALGORITHMS
    ]
    return client


@cache
def _client(issuer: str, client_id: str, client_secret: str) -> Any:
    return OAuth().register(
        "openid",
        server_metadata_url=f"{issuer.rstrip('/')}/.well-known/openid-configuration",
        client_id=client_id,
        client_secret=client_secret,
        client_kwargs={
            "scope": settings.OIDC_SCOPES,
            "code_challenge_method": "S256",
            "default_timeout": TIMEOUT_S,
        },
    )


def _fault(error: Exception) -> ProviderError:
    # A URL in an error's text may contain the code.
    log.warning("openid.failed", error=type(error).__name__)
    return ProviderError(type(error).__name__)
