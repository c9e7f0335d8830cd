"""The form that submits a job, and the request that it makes."""
