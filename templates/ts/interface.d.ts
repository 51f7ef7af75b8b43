// The interface of wit/deps/dqhost-queue/queue.wit as QuickJS has it, and what prelude.js adds.

declare module "dqhost:queue/types@0.1.0" {
  export interface Message {
    id: string;
    queue: string;
    payload: Uint8Array;
    headers: [string, string][];
    attempt: number;
    maxAttempts: number;
    sentAtMs?: number | null;
    dueAtMs?: number | null;
  }

  export interface Nack {
    delayMs?: number | null;
    reason?: string | null;
  }

  export type Verdict =
    | { tag: "ack" }
    | { tag: "nack"; val: Nack }
    | { tag: "reject"; val: string };
}

declare module "dqhost:queue/outbox@0.1.0" {
  export interface NewMessage {
    queue?: string | null;
    payload: Uint8Array;
    headers: [string, string][];
    delayMs: number;
    retries?: number | null;
  }

  // What `send` throws has it as `payload`.
  export type SendError =
    | { tag: "not-allowed"; val: string }
    | { tag: "invalid"; val: string }
    | { tag: "too-much"; val: string };

  export function send(msg: NewMessage): string;
}

declare module "dqhost:queue/delivery@0.1.0" {
  export function remainingMs(): number;
  export function extend(ms: number): number;
}

declare module "dqhost:queue/http@0.1.0" {
  export interface Request {
    method: string;
    url: string;
    headers: [string, string][];
    body: Uint8Array;
  }

  export interface Response {
    status: number;
    headers: [string, string][];
    body: Uint8Array;
  }

  // What `fetch` throws has it as `payload`.
  export type RequestError =
    | { tag: "not-allowed"; val: string }
    | { tag: "invalid"; val: string }
    | { tag: "too-much"; val: string }
    | { tag: "failed"; val: string };

  export function fetch(req: Request): Response;
}

declare module "dqhost:queue/result@0.1.0" {
  // What `set` throws has it as `payload`. The world has to include consumer-with-result.
  export type SetError = { tag: "too-large"; val: number };

  export function set(bytes: Uint8Array): void;
}

declare module "wasi:logging/logging@0.1.0-draft" {
  export type Level = "trace" | "debug" | "info" | "warn" | "error" | "critical";

  export function log(level: Level, context: string, message: string): void;
}

declare const console: Record<
  "debug" | "log" | "info" | "warn" | "error",
  (...values: unknown[]) => void
>;

declare class TextEncoder {
  encode(text: string): Uint8Array;
}

declare class TextDecoder {
  decode(bytes: Uint8Array): string;
}
