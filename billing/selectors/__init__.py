"""Reads for the meter, the checks and the pages. Nothing here writes."""
