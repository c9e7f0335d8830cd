"""Jobs in words and charts: what their templates read."""
