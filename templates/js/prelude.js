// What QuickJS does not have: console, TextEncoder and TextDecoder (UTF-8 only).

import { log } from "wasi:logging/logging@0.1.0-draft";

const text = (value) => {
  if (typeof value === "string") return value;
  if (value instanceof Error) return `${value}\n${value.stack}`;
  return JSON.stringify(value) ?? String(value);
};
const logger = (level) => (...values) => log(level, "", values.map(text).join(" "));

globalThis.console ??= {
  debug: logger("debug"),
  log: logger("info"),
  info: logger("info"),
  warn: logger("warn"),
  error: logger("error"),
};

globalThis.TextEncoder ??= class {
  encode(string) {
    const escaped = encodeURIComponent(String(string).toWellFormed());
    const bytes = escaped.match(/%..|[^%]/g) ?? [];
    const byte = (part) => (part[0] === "%" ? parseInt(part.slice(1), 16) : part.charCodeAt(0));
    return Uint8Array.from(bytes, byte);
  }
};

// Bytes that are not UTF-8 are an error.
globalThis.TextDecoder ??= class {
  decode(bytes) {
    let escaped = "";
    for (const byte of bytes) escaped += "%" + byte.toString(16).padStart(2, "0");
    try {
      return decodeURIComponent(escaped);
    } catch {
      throw new TypeError("the bytes are not UTF-8");
    }
  }
};
