"""What people change of credit: terms, allowances, transfers. One transaction each, recorded."""
