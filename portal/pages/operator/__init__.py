"""What the pages of the operator's console say, built from rows and from what was typed."""
