"""What may be asked for: one struct per resource, from which all that read it follow."""
