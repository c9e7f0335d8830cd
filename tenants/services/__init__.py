"""What changes tenants, people and quotas: one transaction each."""
