"""What policies have in common: admission, terms, reservations, and why jobs wait."""
