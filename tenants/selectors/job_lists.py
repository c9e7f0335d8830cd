"""Queries of what a person keeps about lists of jobs."""

from tenants.models import SavedFilter


def saved_filters(user_id: int, tenant_id: int) -> list[SavedFilter]:
    """Return a person's filters for a tenant's jobs, by name. A single query."""
    kept = SavedFilter.objects.filter(user=user_id, tenant=tenant_id)
    return list(kept.order_by("name"))
