"""A round as it is disclosed: with numbers for ids, what was not read left out, fields named."""
