"""Code shared by policies: admission, terms, reservations, and reasons why jobs wait."""
