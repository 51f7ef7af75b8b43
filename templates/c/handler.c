// Looks at an order when its time to be paid is over.

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bindings/handler.h"
#include "json.h"

typedef exports_dqhost_queue_handler_message_t message_t;
typedef exports_dqhost_queue_handler_verdict_t verdict_t;

// Bytes of an order's number or status, with a zero byte.
enum { FIELD_MAX = 64 };

// A text for the host, which frees it.
static handler_string_t text(const char *format, ...) {
    char line[4 * FIELD_MAX];
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    handler_string_t made;
    handler_string_dup(&made, line);
    return made;
}

static verdict_t ack(void) { return (verdict_t){.tag = DQHOST_QUEUE_TYPES_VERDICT_ACK}; }

static verdict_t reject(handler_string_t reason) {
    return (verdict_t){.tag = DQHOST_QUEUE_TYPES_VERDICT_REJECT, .val.reject = reason};
}

static verdict_t nack(uint64_t delay_ms, handler_string_t reason) {
    return (verdict_t){
        .tag = DQHOST_QUEUE_TYPES_VERDICT_NACK,
        .val.nack = {.delay_ms = {true, delay_ms}, .reason = {true, reason}},
    };
}

// Sends a mail with the ack. False if it is refused.
static bool send_mail(const char *order) {
    handler_string_t line = text("order %s is cancelled", order), queue, id;
    handler_string_set(&queue, "mails");
    dqhost_queue_outbox_new_message_t mail = {
        .queue = {true, queue},
        .payload = {line.ptr, line.len},
    };
    dqhost_queue_outbox_send_error_t refusal;
    const bool is_sent = dqhost_queue_outbox_send(&mail, &id, &refusal);
    handler_string_free(&line);
    if (is_sent) {
        handler_string_free(&id);
    } else {
        dqhost_queue_outbox_send_error_free(&refusal);
    }
    return is_sent;
}

// The payload: {"order": "A-1", "status": "paid"}.
static verdict_t handle(const message_t *message) {
    char order[FIELD_MAX], status[FIELD_MAX];
    const uint8_t *json = message->payload.ptr;
    const size_t size = message->payload.len;
    if (!json_text(json, size, "order", order, sizeof order) ||
        !json_text(json, size, "status", status, sizeof status)) {
        // A retry cannot help: it becomes a dead letter.
        return reject(text("not an order: no JSON object with the texts order and status"));
    }
    if (strcmp(status, "paid") == 0) {
        printf("order %s is paid\n", order);
        return ack();
    }
    if (strcmp(status, "unpaid") != 0) {
        return reject(text("order %s has the unknown status \"%s\"", order, status));
    }
    if (message->attempt == 1) {
        return nack(1000, text("order %s is not paid yet", order));
    }
    if (!send_mail(order)) {
        return nack(60000, text("the mail of order %s is refused: see --allow-send", order));
    }
    printf("order %s is cancelled\n", order);
    return ack();
}

void exports_dqhost_queue_handler_handle(message_t *message, verdict_t *verdict) {
    *verdict = handle(message);
    exports_dqhost_queue_handler_message_free(message);
}
