// Reads JSON, as far as an order needs it. For more, take a library such as cJSON.

#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Copies the text of the member `name` of a JSON object to `out`, with a zero byte at its end. False if
// the bytes are no JSON object, or have no text of that name that is shorter than `max` bytes.
bool json_text(const uint8_t *json, size_t size, const char *name, char *out, size_t max);

#endif
