"""The site's provider of OpenID Connect, as pages name it."""

from django.conf import settings

from tenants.models import User

# The session's value with an identity that may be connected with the account.
OFFERED = "openid_offered"


class ProviderError(Exception):
    """The provider did not answer, refused, or its answer proves nothing."""


def provider_name() -> str:
    """Return the provider's name for readers; empty if the site has none."""
    return str(settings.OIDC_NAME) if settings.OIDC_ISSUER else ""


def is_connected(user: User) -> bool:
    """Return whether the account has an identity at the provider of today's settings."""
    return (user.identity or "").startswith(f"{settings.OIDC_ISSUER} ")
