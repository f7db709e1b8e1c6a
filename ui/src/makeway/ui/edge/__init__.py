"""Where the page meets the world: HTTP, NATS and the API server."""
