"""The disclosed form of a round: numbers for ids, unread data left out, named fields."""
