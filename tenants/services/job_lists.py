"""A person's settings for lists of jobs: filters under a name, and the chosen columns."""

from collections.abc import Collection

from django.utils.translation import gettext as _

from tenants.input.errors import FieldErrors
from tenants.models import SavedFilter, User
from tenants.scopes import tenant_scope

FILTERS_MAX, NAME_MAX, QUERY_MAX = 20, 40, 600


def save_filter(*, user: User, tenant_id: int, name: str, query: str) -> SavedFilter:
    """Keep the query under a name; a name that exists gets the new query.

    Raises:
        InvalidInputError: a text is empty or too long, or the person has too many filters.
    """
    name, errors = name.strip(), FieldErrors()
    if not 0 < len(name) <= NAME_MAX or not name.isprintable():
        errors.add("name", _("must be one line of 1 to {most} characters").format(most=NAME_MAX))
    if not 0 < len(query) <= QUERY_MAX or not query.isprintable():
        errors.add("query", _("must have 1 to {most} characters").format(most=QUERY_MAX))
    errors.raise_any()
    with tenant_scope(tenant_id):
        # The lock makes the count exact.
        User.objects.select_for_update(no_key=True).get(pk=user.pk)
        kept = SavedFilter.objects.filter(user=user, tenant_id=tenant_id)
        if kept.exclude(name=name).count() >= FILTERS_MAX:
            errors.add(
                "name",
                _("You have {most} filters here. Delete one first.").format(most=FILTERS_MAX),
            )
            errors.raise_any()
        return kept.update_or_create(
            user=user, tenant_id=tenant_id, name=name, defaults={"query": query}
        )[0]


def delete_filter(*, user: User, tenant_id: int, name: str) -> bool:
    """Delete a person's filter; return whether it existed."""
    with tenant_scope(tenant_id):
        deleted, _ = SavedFilter.objects.filter(user=user, tenant_id=tenant_id, name=name).delete()
    return bool(deleted)


def choose_columns(*, user: User, columns: Collection[str]) -> None:
    """Keep the columns that a person wants in lists of jobs; empty for the usual ones."""
    User.objects.filter(pk=user.pk).update(job_columns=list(columns))
