"""The site: settings, URLs, guards, errors, and permissions."""
