"""The form that submits a job: what was typed, and the request that it means."""
