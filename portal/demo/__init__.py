"""The demo: its three pools."""
