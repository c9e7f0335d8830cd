"""The site: settings, addresses, guards, errors, and who may see what."""
