"""Read-only queries of people, tenants and quotas for pages and the API."""
