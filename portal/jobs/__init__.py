"""Pages of jobs: lists, one job, its log, submission, job types."""
