"""Reader of a job's utility."""

from collections.abc import Mapping

from django.utils.translation import gettext as _

from evenshare_core.domain.utilities import UtilityError, read_utility, utility_data
from scheduling.requests.core_errors import core_error
from tenants.input.errors import FieldErrors

TEXT_MAX = 200


def read_utility_field(given: Mapping[str, object], errors: FieldErrors) -> dict[str, str]:
    """Read a utility. Return an empty dict and add an error if it is wrong.

    The input is an object of texts or numbers, or a text as in trace files.
    """
    value = given.get("utility")
    if value in (None, "", {}):
        return {}
    if isinstance(value, str) and len(value) > TEXT_MAX:
        errors.add(
            "utility",
            _("is longer than {most} characters").format(most=TEXT_MAX),
            code="too_long",
        )
        return {}
    try:
        return utility_data(read_utility(0, value))
    except UtilityError as error:
        place = f"utility.{error.field}" if error.field else "utility"
        errors.add(place, core_error(error.reason), _(error.hint))
    return {}
