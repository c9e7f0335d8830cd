"""From what selectors return to what templates draw: words, notes, marks. Nothing here reads."""
