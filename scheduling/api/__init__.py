"""The REST API of jobs, pools, queues, quotas and rounds."""
