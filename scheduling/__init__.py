"""Scheduling: jobs, pools and rounds as rows, and the engine that decides and carries out."""
