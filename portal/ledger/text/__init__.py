"""What the pages of ledgers say."""
