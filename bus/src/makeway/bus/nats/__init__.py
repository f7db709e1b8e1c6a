"""The connection to NATS, and what is done over it: requests, JetStream, pulls, following a stream."""
