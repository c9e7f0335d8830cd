"""What tenants lend, borrow and trade."""
