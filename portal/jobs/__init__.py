"""Pages of jobs: lists, a job, its log, submission, job types."""
