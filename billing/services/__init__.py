"""Changes of credit by people: terms, allowances, transfers. Each is an audited transaction."""
