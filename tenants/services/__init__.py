"""Changes of tenants, people and quotas: one transaction each."""
