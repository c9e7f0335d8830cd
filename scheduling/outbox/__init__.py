"""The outbox: makes messages of events, and delivers them by mail and webhooks (0245)."""
