"""Input of people and programs: one way to read values and to report errors. Pure."""
