"""Changes of credit by users: terms, allowances, transfers. Each is an audited transaction."""
