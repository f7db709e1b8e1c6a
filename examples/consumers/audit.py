"""Reads how orders ended by the consumer `audit`, and acknowledges each. See docs/consumers.md."""

import asyncio
import contextlib
import json
import os

import nats


async def main() -> None:
    bus = await nats.connect(os.environ["NATS_URL"], inbox_prefix="_INBOX.makeway.consumer-audit")
    outcomes = await bus.jetstream(prefix="makeway.v1.api").pull_subscribe_bind("audit", "MAKEWAY_OUTCOMES")
    while True:
        with contextlib.suppress(nats.errors.TimeoutError):  # none for 30 s
            for message in await outcomes.fetch(100, timeout=30):
                outcome = json.loads(message.data)["data"]
                print(outcome["orderId"], outcome["result"], len(outcome["victims"]), "victims", flush=True)
                await message.ack()


asyncio.run(main())
