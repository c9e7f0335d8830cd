"""What pages and the API read of people, tenants and quotas. Nothing here writes."""
