"""Scheduling: tables of jobs, pools and rounds, and the engine that decides and runs rounds."""
