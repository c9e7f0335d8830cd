"""The pages of a tenant in words and charts."""
