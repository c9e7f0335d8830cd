"""Texts and charts of jobs for their templates."""
