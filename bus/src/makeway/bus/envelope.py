"""CloudEvents 1.0 in structured JSON mode: what every stream message travels in."""

from __future__ import annotations

import msgspec

from makeway.bus.messages import Text, Time


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event. `data` stays raw until `type` has been understood.

    `signature` (over the exact bytes of `data`) and `keyid` are extension attributes, empty until
    orders are signed.
    """

    specversion: Text
    id: Text
    source: Text
    type: Text
    time: Time
    datacontenttype: Text
    subject: str = ""
    keyid: str = ""
    signature: str = ""
    data: msgspec.Raw
