from fixtures_nats import bus, connect_bus, nats_binary, nats_server

__all__ = ["bus", "connect_bus", "nats_binary", "nats_server"]
