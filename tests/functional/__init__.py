"""Pages and the API over HTTP, as each kind of visitor."""
