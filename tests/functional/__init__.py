"""Test pages and the API over HTTP as each kind of visitor."""
