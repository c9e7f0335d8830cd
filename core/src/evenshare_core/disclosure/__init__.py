"""The disclosed form of a round: numbers for ids, no unread data, and names for fields."""
