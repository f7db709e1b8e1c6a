"""The bus: the messages makeway's parts exchange over NATS, and the client that carries them.

`messages`, `envelope`, `subjects`, `codec`, `streams` and `ids` are pure; `client` is where to start
for the rest.
"""
