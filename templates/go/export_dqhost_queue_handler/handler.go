// Package export_dqhost_queue_handler looks at an order when its time to be paid is over.
package export_dqhost_queue_handler

import (
	"encoding/json"
	"fmt"

	outbox "handler/bindings/dqhost_queue_outbox"
	. "handler/bindings/dqhost_queue_types"

	. "go.bytecodealliance.org/pkg/wit/types"
)

// The payload: {"order": "A-1", "status": "paid"}.
type order struct {
	Order  string
	Status string
}

// Handle is called for each delivery.
func Handle(message Message) Verdict {
	var o order
	if err := json.Unmarshal(message.Payload, &o); err != nil {
		// A retry cannot help: it becomes a dead letter.
		return MakeVerdictReject(fmt.Sprintf("not an order: %v", err))
	}
	switch o.Status {
	case "paid":
		fmt.Printf("order %s is paid\n", o.Order)
		return MakeVerdictAck()
	case "unpaid":
		if message.Attempt == 1 {
			reason := fmt.Sprintf("order %s is not paid yet", o.Order)
			return MakeVerdictNack(Nack{DelayMs: Some(uint64(1000)), Reason: Some(reason)})
		}
		// It is sent with the ack.
		sent := outbox.Send(outbox.NewMessage{
			Queue:   Some("mails"),
			Payload: fmt.Appendf(nil, "order %s is cancelled", o.Order),
		})
		if sent.IsErr() {
			reason := fmt.Sprintf("the mail of order %s is refused: see --allow-send", o.Order)
			return MakeVerdictNack(Nack{DelayMs: Some(uint64(60_000)), Reason: Some(reason)})
		}
		fmt.Printf("order %s is cancelled\n", o.Order)
		return MakeVerdictAck()
	default:
		return MakeVerdictReject(fmt.Sprintf("order %s has the unknown status %q", o.Order, o.Status))
	}
}
