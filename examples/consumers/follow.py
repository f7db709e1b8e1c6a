"""Follows how orders end with the login `viewer`, which keeps no position. See docs/consumers.md."""

import asyncio
import json
import os

import nats


async def main() -> None:
    bus = await nats.connect(os.environ["NATS_URL"], inbox_prefix="_INBOX.makeway.cli")
    streams, sequence = bus.jetstream(prefix="makeway.v1.api"), 0
    while True:
        try:
            stored = await streams.get_msg(
                "MAKEWAY_OUTCOMES", seq=sequence + 1, subject=">", direct=True, next=True
            )
        except nats.js.errors.NotFoundError:
            await asyncio.sleep(1)  # none so far
            continue
        sequence, outcome = stored.seq, json.loads(stored.data)["data"]
        print(outcome["orderId"], outcome["result"], len(outcome["victims"]), "victims", flush=True)


asyncio.run(main())
