"""Looks at an order when its time to be paid is over."""

import json

from wit_world import exports
from wit_world.imports.types import (
    Message,
    Nack,
    Verdict,
    Verdict_Ack,
    Verdict_Nack,
    Verdict_Reject,
)


# The class must be called Handler, as the interface is.
class Handler(exports.Handler):
    def handle(self, msg: Message) -> Verdict:
        # The payload: {"order": "A-1", "status": "paid"}.
        try:
            payload = json.loads(msg.payload)
            order, status = payload["order"], payload["status"]
        except (ValueError, TypeError, KeyError) as error:
            # A retry cannot help: it becomes a dead letter.
            return Verdict_Reject(f"not an order: {error!r}")
        if status == "paid":
            print(f"order {order} is paid")
            return Verdict_Ack()
        if status == "unpaid" and msg.attempt == 1:
            return Verdict_Nack(Nack(1000, f"order {order} is not paid yet"))
        if status == "unpaid":
            print(f"order {order} is cancelled")
            return Verdict_Ack()
        return Verdict_Reject(f"order {order} has the unknown status {status!r}")
