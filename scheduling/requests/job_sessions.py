"""The fields of a job's request that make it interactive."""

from collections.abc import Mapping

from django.utils.translation import gettext as _

from tenants.input.errors import FieldErrors
from tenants.language import gettext_noop

# The program of an interactive job that names no command.
SERVE = ("python", "-m", "evenshare.session")
KINDS = ("", "notebook", "shell")
IDLE_MIN_S, LIMIT_MIN_S = 60, 60
OPTIONS = ("session_idle_s", "session_s", "session_shared")
ONLY_SESSIONS = gettext_noop("is only for interactive jobs")
SESSION_HINT = gettext_noop("Add session: notebook, or session: shell.")


def read_shared(given: Mapping[str, object], errors: FieldErrors) -> bool:
    """Read whether other members of the tenant may open the session."""
    value = given.get("session_shared", False)
    if not isinstance(value, bool):
        errors.add("session_shared", _("must be true or false"))
        return False
    return value
