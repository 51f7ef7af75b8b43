// Builds the handler and gives it messages by `dqhost run`.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { before, test } from "node:test";

before(() => execFileSync("npm", ["run", "build"], { stdio: "inherit" }));

// The verdict on a payload in an attempt.
function verdict(payload, attempt) {
  const args = ["run", "build/handler.wasm", "--allow-send", "mails", "--payload", payload, "--attempt", String(attempt)];
  const { error, stdout, stderr } = spawnSync("dqhost", args, { encoding: "utf8" });
  // dqhost must be in a folder of PATH.
  if (error) throw error;
  const line = stdout.split("\n").find((line) => line.startsWith("verdict "));
  assert.ok(line, stderr);
  return line.slice("verdict ".length).trim();
}

test("a paid order is acked", () => {
  assert.equal(verdict('{"order": "A-1", "status": "paid"}', 1), "acked");
});

test("an unpaid order is looked at twice", () => {
  const unpaid = '{"order": "A-2", "status": "unpaid"}';
  assert.equal(verdict(unpaid, 1), "nacked: order A-2 is not paid yet, to be retried in 1000 ms");
  assert.equal(verdict(unpaid, 2), "acked");
});

test("what is not an order is rejected", () => {
  assert.match(verdict("hello", 1), /^rejected: not an order/);
  const lost = verdict('{"order": "A-3", "status": "lost"}', 1);
  assert.equal(lost, 'rejected: order A-3 has the unknown status "lost"');
});
