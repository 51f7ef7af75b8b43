// Looks at an order when its time to be paid is over.

import "./prelude.js";

import { send } from "dqhost:queue/outbox@0.1.0";
import type { Message, Verdict } from "dqhost:queue/types@0.1.0";

// The payload: {"order": "A-1", "status": "paid"}.
interface Order {
  order: string;
  status: string;
}

function parsed(payload: Uint8Array): Order {
  const value: Partial<Order> | null = JSON.parse(new TextDecoder().decode(payload));
  const { order, status } = value ?? {};
  if (typeof order !== "string" || typeof status !== "string") {
    throw new TypeError("order and status must be strings");
  }
  return { order, status };
}

// Sends a mail with the ack. False if it is refused.
function mail(order: string): boolean {
  const payload = new TextEncoder().encode(`order ${order} is cancelled`);
  try {
    send({ queue: "mails", payload, headers: [], delayMs: 0 });
    return true;
  } catch {
    return false;
  }
}

function handle(message: Message): Verdict {
  let order: string, status: string;
  try {
    ({ order, status } = parsed(message.payload));
  } catch (error) {
    // A retry cannot help: it becomes a dead letter.
    return { tag: "reject", val: `not an order: ${(error as Error).message}` };
  }
  switch (status) {
    case "paid":
      console.log(`order ${order} is paid`);
      return { tag: "ack" };
    case "unpaid":
      if (message.attempt === 1) {
        const reason = `order ${order} is not paid yet`;
        return { tag: "nack", val: { delayMs: 1000, reason } };
      }
      if (!mail(order)) {
        const reason = `the mail of order ${order} is refused: see --allow-send`;
        return { tag: "nack", val: { delayMs: 60_000, reason } };
      }
      console.log(`order ${order} is cancelled`);
      return { tag: "ack" };
    default: {
      const unknown = JSON.stringify(status);
      return { tag: "reject", val: `order ${order} has the unknown status ${unknown}` };
    }
  }
}

export const handler = { handle };
