"""All settings, read from the environment and documented in docs/configuration.

There are two modes. `demo` (the default) is the mode of `make run`: this machine only, a secret key
in the data folder, the embedded database. `production` has no such defaults: a missing value is an
error, and portal/site/checks.py refuses unsafe ones.
"""

import os
import warnings
from pathlib import Path
from typing import Any

import structlog
from csp.constants import NONE, SELF

from portal.embedded import folders
from portal.site.environment import (
    SettingError,
    database,
    fields,
    flag,
    issuer,
    listed,
    mail_server,
    port_range,
    session_domain,
    text,
    whole,
)

BASE_DIR = Path(__file__).resolve().parents[2]
FOLDERS = folders.locate()

# Mode
MODE = text("EVENSHARE_MODE", "demo")
if MODE not in ("demo", "production"):
    raise SettingError(f"EVENSHARE_MODE must be demo or production, not {MODE!r}")
PRODUCTION = MODE == "production"
DEBUG = flag("DEBUG")


def _demo_key() -> str:
    try:
        return FOLDERS.secret_key.read_text()
    except OSError:
        return folders.make_demo_key()


SECRET_KEY = text("SECRET_KEY", None if PRODUCTION else _demo_key())
ALLOWED_HOSTS = listed("ALLOWED_HOSTS", "" if PRODUCTION else "localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = listed("CSRF_TRUSTED_ORIGINS")
CSRF_FAILURE_VIEW = "portal.site.error_views.stale_form"

# The name of this installation in its executors' tokens: letters and digits.
INSTALLATION = text("EVENSHARE_INSTALLATION", "es")

# Private keys that sign the heads of logs: shared by all processes, and not in the database.
LOG_KEYS_DIR = text("EVENSHARE_LOG_KEYS_DIR", str(FOLDERS.log_keys))

# Files with the bytes of rounds older than a week: shared by all processes.
ROUNDS_DIR = text("EVENSHARE_ROUNDS_DIR", str(FOLDERS.rounds))
ROUNDS_KEEP_DAYS = whole("ROUNDS_KEEP_DAYS", 90)
if ROUNDS_KEEP_DAYS < 90:
    raise SettingError(
        "ROUNDS_KEEP_DAYS must be at least 90: rounds must be recomputable for that long"
    )
_ROUNDS_FOLDER = "scheduling.selectors.rounds.files.RoundFolder"
_ROUNDS_STORAGE = text("ROUNDS_STORAGE", _ROUNDS_FOLDER)
_ROUNDS_OPTIONS = fields("ROUNDS_STORAGE_OPTIONS")
if _ROUNDS_STORAGE == _ROUNDS_FOLDER:
    _ROUNDS_OPTIONS = {"location": ROUNDS_DIR} | _ROUNDS_OPTIONS

# Applications
INSTALLED_APPS = [
    "portal",
    "billing",
    "scheduling",
    "tenants",
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "csp",
    "rest_framework",
    "drf_spectacular",
]
MIDDLEWARE = [
    "portal.site.request_id.RequestId",
    "portal.site.observed.Observed",
    "portal.site.guards.Guards",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "portal.site.guards.NoSuchFile",
    "portal.site.guards.NoSessions",
    "portal.site.packing.Packed",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "portal.site.language.PageLanguage",
    "portal.site.zone.PageZone",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "portal.site.fragments.LiveFragment",
    "portal.site.middleware.WatchedPools",
]
ROOT_URLCONF = "portal.site.urls"
ASGI_APPLICATION = "portal.site.asgi.application"
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "OPTIONS": {
            "loaders": [
                (
                    "django.template.loaders.cached.Loader",
                    [
                        "portal.site.templates.Loader",
                        "django.template.loaders.app_directories.Loader",
                    ],
                )
            ],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "portal.site.context.frame",
            ],
        },
    }
]

# Database: `default` is the app role, which owns nothing; `owner` runs the migrations.
_embedded = "postgres://{}@/evenshare?host=" + str(FOLDERS.postgres_socket)
_app_url = text("DATABASE_URL", None if PRODUCTION else _embedded.format("evenshare_app"))
_owner_url = text(
    "OWNER_DATABASE_URL",
    _app_url if "DATABASE_URL" in os.environ else _embedded.format("evenshare_owner"),
)
DATABASES = {
    "default": database("DATABASE_URL", _app_url),
    "owner": database("OWNER_DATABASE_URL", _owner_url),
}
APP_DB_ROLE = str(DATABASES["default"]["USER"])
# Requests run on short-lived threads, so only a pool keeps connections; a worker has one.
# portal/site/lanes.py admits as many requests as there are connections.
DATABASE_POOL_SIZE = whole("DATABASE_POOL_SIZE", 0)
if DATABASE_POOL_SIZE:
    _options: Any = DATABASES["default"]["OPTIONS"]
    _options["pool"] = {"min_size": 1, "max_size": DATABASE_POOL_SIZE, "timeout": 5}
else:
    DATABASES["default"]["CONN_MAX_AGE"] = 600
# A connection that a restarted server has dropped is replaced before it is used.
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Redis: the broker (portal/site/celery.py) and other data that may be lost.
REDIS_URL = text("REDIS_URL", None if PRODUCTION else f"unix://{FOLDERS.valkey_socket}?db=0")

# Messages to people: links in them, mail, and the addresses that webhooks may have.
_site = "".join(ALLOWED_HOSTS[:1]).lstrip(".") or "localhost"
SITE_URL = text(
    "SITE_URL",
    f"https://{_site}" if PRODUCTION else f"http://localhost:{text('PORT', '8000')}",
).rstrip("/")
globals().update(mail_server("SMTP_URL", text("SMTP_URL", "smtp:")))
DEFAULT_FROM_EMAIL = text("MAIL_FROM", "evenshare@localhost")
WEBHOOK_INNER = listed("WEBHOOK_INNER", "none")
WEBHOOK_DENIED = [one for one in listed("WEBHOOK_DENIED", "none") if one != "none"]
WEBHOOK_HTTP = flag("WEBHOOK_HTTP")

# Users
AUTH_USER_MODEL = "tenants.User"
LOGIN_URL = "/login/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/"
AUTHENTICATION_BACKENDS = [
    "tenants.lockout.GuardedBackend",
    # Enables the demo's sign-ins; it never checks a password, as the backend above is final.
    "django.contrib.auth.backends.ModelBackend",
]
PASSWORD_HASHERS = ["tenants.hashing.Scrypt", "tenants.hashing.PBKDF2"]
# Maximum number of passwords that a process hashes at once; other log-ins wait or are refused.
PASSWORD_HASHES_AT_ONCE = max(1, whole("PASSWORD_HASHES_AT_ONCE", 2))
AUTH_PASSWORD_VALIDATORS = [
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 12},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

# Sign-in by OpenID Connect (docs/sign-in.md), at the address that the provider calls its issuer.
OIDC_ISSUER = issuer("OIDC_ISSUER", text("OIDC_ISSUER", "none"), production=PRODUCTION)
OIDC_CLIENT_ID = text("OIDC_CLIENT_ID", None if OIDC_ISSUER else "none")
OIDC_CLIENT_SECRET = text("OIDC_CLIENT_SECRET", None if OIDC_ISSUER else "none")
# The name of the provider on the login page.
OIDC_NAME = text("OIDC_NAME", "OpenID Connect")
# The claim with the login name of a new person.
OIDC_USERNAME_CLAIM = text("OIDC_USERNAME_CLAIM", "preferred_username")
# Connect an identity with the account that has its name, at the first sign-in.
OIDC_LINKS_NAMES = flag("OIDC_LINKS_NAMES")
OIDC_SCOPES = "openid profile email"
# Signatures of ID tokens that need the provider's private key.
OIDC_ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)

# Interactive jobs: each has an origin of its own below this domain (with a port, if it is not 443).
SESSIONS_DOMAIN = session_domain("SESSIONS_DOMAIN", text("SESSIONS_DOMAIN", "off"), ALLOWED_HOSTS)
# Ports of nodes on which sessions listen: the proxy connects to no other.
SESSION_PORTS = port_range("SESSION_PORTS", text("SESSION_PORTS", "42000-42999"))
# The idle time after which a session ends, in seconds: the default and the most.
SESSION_IDLE_S = whole("SESSION_IDLE_S", 1800)
SESSION_IDLE_MAX_S = whole("SESSION_IDLE_MAX_S", 4 * 3600)

# Permissions of the browser. No inline script or style: put them into static/.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "img-src": [SELF, "data:"],
        "object-src": [NONE],
        "base-uri": [SELF],
        # The button that opens a session ends at the session's origin.
        "form-action": [SELF, *([f"https://*.{SESSIONS_DOMAIN}"] if SESSIONS_DOMAIN else [])],
        "frame-ancestors": [NONE],
    }
}
SESSION_COOKIE_NAME = "__Host-session" if PRODUCTION else "evenshare_session"
CSRF_COOKIE_NAME = "__Host-csrf" if PRODUCTION else "evenshare_csrf"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = PRODUCTION
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 8 * 3600
X_FRAME_OPTIONS = "DENY"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_SSL_REDIRECT = PRODUCTION
# Probes and monitors on this machine or inside a cluster use plain HTTP.
SECURE_REDIRECT_EXEMPT = ["^healthz$", "^readyz$", "^metrics$"]
SECURE_HSTS_SECONDS = 31_536_000 if PRODUCTION else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if flag("BEHIND_TLS_PROXY") else None
# The limit of all bodies, of any type and URL: portal/site/gate.py enforces it.
DATA_UPLOAD_MAX_MEMORY_SIZE = 2**20

# The REST API; its views are in the `api` modules, its URLs in portal/site/urls_api.py.
REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "tenants.api.auth.BearerAuthentication",
        "tenants.api.auth.BrowserAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["tenants.api.auth.SignedIn"],
    "DEFAULT_PARSER_CLASSES": ["portal.site.json_boundary.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["portal.site.json_boundary.JSONRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "portal.site.json_boundary.AlwaysJSON",
    "DEFAULT_SCHEMA_CLASS": "portal.site.schema.EvenshareSchema",
    "EXCEPTION_HANDLER": "portal.site.errors.handle",
}
SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Evenshare",
    "VERSION": "1",
    "DESCRIPTION": "Submit jobs, and see why, when and at which price they run.",
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "COMPONENT_SPLIT_REQUEST": False,
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "ENUM_NAME_OVERRIDES": {"JobState": "scheduling.models.jobs.Job.State"},
}
# A tenant's average submissions per second; a bulk counts as twenty.
SUBMISSIONS_PER_S = whole("SUBMISSIONS_PER_S", 300)
# Maximum number of queued jobs of a tenant, in all pools together.
PENDING_JOBS_MAX = whole("PENDING_JOBS_MAX", 10_000)

# Traces that come with the portal, by name, which a demo pool's feed replays.
BUNDLED_TRACES = BASE_DIR / "portal" / "demo" / "data"

# The Slurm cluster that `make run-slurm` has started: its supervisor sets the variable.
DEMO_SLURM_CONF = text("EVENSHARE_SLURM_CONF", "")

# Languages of pages (portal/site/language.py). Each area of pages has its catalogues
# (portal/site/catalogs.py). REST and the command answer in English.
LANGUAGE_CODE = "en"
LANGUAGE_NAMES = {"en": "English", "de": "Deutsch"}
TRANSLATED = [code for code in LANGUAGE_NAMES if code != LANGUAGE_CODE]
_languages = listed("LANGUAGES", ",".join(LANGUAGE_NAMES))
if LANGUAGE_CODE not in _languages or not LANGUAGE_NAMES.keys() >= set(_languages):
    raise SettingError(
        f"LANGUAGES must be {LANGUAGE_CODE} and any of {', '.join(TRANSLATED)}, not {_languages!r}"
    )
LANGUAGES = [(code, LANGUAGE_NAMES[code]) for code in _languages]
LOCALE_PATHS = [
    str(BASE_DIR / folder / "locale")
    for folder in (
        *("portal/account", "portal/charts", "portal/common", "portal/front", "portal/jobs"),
        *("portal/ledger", "portal/operate", "portal/overview", "portal/pools", "portal/rounds"),
        *("portal/site", "billing", "scheduling", "tenants"),
    )
]
USE_I18N = True
FORMAT_MODULE_PATH = "portal.site.formats"
# Time: instants are UTC; a page shows local time at its edge.
USE_TZ = True
TIME_ZONE = "UTC"

# Static files: by content hash and compressed, in production and under `make run`, whose supervisor
# sets the variable (portal/site/collected.py). Otherwise from their folders.
COLLECTED = PRODUCTION or (flag("EVENSHARE_COLLECTED") and not DEBUG)
STATIC_URL = "/static/"
STATIC_ROOT = BASE_DIR / "staticfiles" if PRODUCTION else FOLDERS.data / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = not COLLECTED
if not COLLECTED:
    # Nothing is collected, so WhiteNoise finds no folder of collected files.
    warnings.filterwarnings("ignore", message="No directory at", category=UserWarning)
WHITENOISE_AUTOREFRESH = DEBUG
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "rounds": {"BACKEND": _ROUNDS_STORAGE, "OPTIONS": _ROUNDS_OPTIONS},
    "staticfiles": {
        "BACKEND": (
            "whitenoise.storage.CompressedManifestStaticFilesStorage"
            if COLLECTED
            else "django.contrib.staticfiles.storage.StaticFilesStorage"
        )
    },
}

# Metrics: for this machine, and for clients with the token.
METRICS_TOKEN = text("METRICS_TOKEN", "")
if 0 < len(METRICS_TOKEN) < 16:
    raise SettingError("METRICS_TOKEN must have at least 16 characters")

# Logs: one line per event on standard output; the parent process stores them.
LOG_FORMAT = text("LOG_FORMAT", "json" if PRODUCTION else "console")
if LOG_FORMAT not in ("json", "console"):
    raise SettingError(f"LOG_FORMAT must be json or console, not {LOG_FORMAT!r}")
_renderers: list[Any] = (
    [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    if LOG_FORMAT == "json"
    # portal/embedded/children.py looks for `[error ]` in this format.
    else [
        structlog.dev.ConsoleRenderer(
            colors=False, exception_formatter=structlog.dev.plain_traceback
        )
    ]
)
LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "()": structlog.stdlib.ProcessorFormatter,
            "foreign_pre_chain": [
                structlog.contextvars.merge_contextvars,
                structlog.stdlib.add_logger_name,
                structlog.stdlib.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
            ],
            "processors": [
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers,
            ],
        }
    },
    "handlers": {
        "output": {"class": "portal.embedded.log_handlers.StreamHandler", "formatter": "line"}
    },
    "root": {"handlers": ["output"], "level": text("LOG_LEVEL", "INFO")},
    "loggers": {
        # Logging every 404 as a warning would allow strangers to fill the log.
        "django.request": {"level": "ERROR"},
        # Requests for another host get 400; logging each with a traceback would also fill the log.
        "django.security.DisallowedHost": {"level": "CRITICAL"},
        # A log line per tick and message would hide the others.
        "celery.beat": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING"},
        "celery.worker.strategy": {"level": "WARNING"},
    },
}
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    ],
    logger_factory=structlog.stdlib.LoggerFactory(),
    cache_logger_on_first_use=True,
)
