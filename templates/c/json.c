#include "json.h"

#include <ctype.h>
#include <string.h>

// Values within values that are read. The stack is small.
enum { DEPTH_MAX = 32 };

struct input {
    const uint8_t *at, *end;
};

// Where text goes. One that is too long is read to its end and is not ok.
struct output {
    char *text;
    size_t length, max;
    bool is_ok;
};

static void put(struct output *out, unsigned byte) {
    if (out->length + 1 < out->max && byte != 0) {
        out->text[out->length++] = (char)byte;
    } else {
        out->is_ok = false;
    }
}

static void put_character(struct output *out, uint32_t c) {
    if (c < 0x80) {
        put(out, c);
        return;
    }
    if (c < 0x800) {
        put(out, 0xc0 | c >> 6);
    } else {
        if (c < 0x10000) {
            put(out, 0xe0 | c >> 12);
        } else {
            put(out, 0xf0 | c >> 18);
            put(out, 0x80 | (c >> 12 & 0x3f));
        }
        put(out, 0x80 | (c >> 6 & 0x3f));
    }
    put(out, 0x80 | (c & 0x3f));
}

static void skip_space(struct input *in) {
    while (in->at < in->end && memchr(" \t\r\n", *in->at, 4) != NULL) in->at++;
}

static bool take(struct input *in, char c) {
    skip_space(in);
    if (in->at == in->end || *in->at != (uint8_t)c) return false;
    in->at++;
    return true;
}

static bool hex4(struct input *in, uint32_t *value) {
    *value = 0;
    for (int i = 0; i < 4; i++) {
        if (in->at == in->end || !isxdigit(*in->at)) return false;
        const int digit = tolower(*in->at++);
        *value = *value << 4 | (uint32_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
    return true;
}

static bool escaped(struct input *in, struct output *out) {
    if (in->at == in->end) return false;
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const uint8_t name = *in->at++;
    if (name != 'u') {
        const char *found = memchr(names, name, sizeof names - 1);
        if (found == NULL) return false;
        put(out, (unsigned char)meant[found - names]);
        return true;
    }
    uint32_t c, low;
    if (!hex4(in, &c)) return false;
    if (c >= 0xd800 && c < 0xdc00) {
        if (in->end - in->at < 2 || *in->at++ != '\\' || *in->at++ != 'u') return false;
        if (!hex4(in, &low) || low < 0xdc00 || low > 0xdfff) return false;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    } else if (c >= 0xdc00 && c < 0xe000) {
        return false;
    }
    put_character(out, c);
    return true;
}

// One character of UTF-8 that is more than a byte.
static bool character(struct input *in, struct output *out) {
    const uint8_t first = *in->at++;
    const int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
    uint32_t c = first & (0x3f >> more);
    for (int i = 0; i < more; i++) {
        if (in->at == in->end || (*in->at & 0xc0) != 0x80) return false;
        c = c << 6 | (*in->at++ & 0x3f);
    }
    static const uint32_t least[] = {0x80, 0x800, 0x10000};
    if (first < 0xc2 || c < least[more - 1] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return false;
    put_character(out, c);
    return true;
}

static bool text(struct input *in, struct output *out) {
    if (!take(in, '"')) return false;
    while (in->at < in->end && *in->at != '"') {
        if (*in->at < 0x20) return false;
        bool is_read = true;
        if (*in->at == '\\') {
            in->at++;
            is_read = escaped(in, out);
        } else if (*in->at >= 0x80) {
            is_read = character(in, out);
        } else {
            put(out, *in->at++);
        }
        if (!is_read) return false;
    }
    return in->at++ < in->end;
}

static bool value(struct input *in, int depth);

// The members of an object or array after its opening bracket.
static bool members(struct input *in, char end, int depth) {
    struct output none = {0};
    if (depth == 0) return false;
    if (take(in, end)) return true;
    do {
        if (end == '}' && (!text(in, &none) || !take(in, ':'))) return false;
        if (!value(in, depth - 1)) return false;
    } while (take(in, ','));
    return take(in, end);
}

// Any value, which is left out. A number or a word is taken as it comes.
static bool value(struct input *in, int depth) {
    struct output none = {0};
    if (take(in, '{')) return members(in, '}', depth);
    if (take(in, '[')) return members(in, ']', depth);
    if (in->at < in->end && *in->at == '"') return text(in, &none);
    const uint8_t *start = in->at;
    static const char plain[] = "+-.0123456789Eaeflnrstu";
    while (in->at < in->end && memchr(plain, *in->at, sizeof plain - 1) != NULL) in->at++;
    return in->at > start;
}

bool json_text(const uint8_t *json, size_t size, const char *name, char *out, size_t max) {
    struct input in = {json, json + size};
    bool is_found = false;
    if (!take(&in, '{')) return false;
    do {
        char key_text[64];
        struct output key = {key_text, 0, sizeof key_text, true};
        if (!text(&in, &key) || !take(&in, ':')) return false;
        key_text[key.length] = 0;
        const bool is_wanted = key.is_ok && strcmp(key_text, name) == 0;
        skip_space(&in);
        if (is_wanted && in.at < in.end && *in.at == '"') {
            struct output found = {out, 0, max, true};
            if (!text(&in, &found)) return false;
            out[found.length] = 0;
            is_found = found.is_ok;
        } else if (!value(&in, DEPTH_MAX)) {
            return false;
        }
    } while (take(&in, ','));
    if (!take(&in, '}')) return false;
    skip_space(&in);
    return is_found && in.at == in.end;
}
