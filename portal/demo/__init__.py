"""The demo: a module for each of its pools, with traces, speeds and people."""
