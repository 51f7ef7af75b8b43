// Looks at an order when its time to be paid is over.

import "./prelude.js";

// The payload: {"order": "A-1", "status": "paid"}.
function handle(message) {
  let order, status;
  try {
    ({ order, status } = JSON.parse(new TextDecoder().decode(message.payload)));
  } catch (error) {
    // A retry cannot help: it becomes a dead letter.
    return { tag: "reject", val: `not an order: ${error.message}` };
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
      console.log(`order ${order} is cancelled`);
      return { tag: "ack" };
    default: {
      const unknown = JSON.stringify(status);
      return { tag: "reject", val: `order ${order} has the unknown status ${unknown}` };
    }
  }
}

export const handler = { handle };
