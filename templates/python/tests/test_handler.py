"""Gives the built handler messages by `dqhost run`."""

import subprocess
import unittest


def verdict(payload: str, attempt: int) -> str:
    """The verdict on a payload in an attempt."""
    # dqhost must be in a folder of PATH.
    command = ["dqhost", "run", "handler.wasm", "--limit", "compile-time=5m"]
    command += ["--payload", payload, "--attempt", str(attempt)]
    run = subprocess.run(command, capture_output=True, text=True)
    for line in run.stdout.splitlines():
        if line.startswith("verdict "):
            return line.removeprefix("verdict ").strip()
    raise AssertionError(run.stderr)


class HandlerTest(unittest.TestCase):
    def test_a_paid_order_is_acked(self) -> None:
        self.assertEqual(verdict('{"order": "A-1", "status": "paid"}', 1), "acked")

    def test_an_unpaid_order_is_looked_at_twice(self) -> None:
        unpaid = '{"order": "A-2", "status": "unpaid"}'
        first = "nacked: order A-2 is not paid yet, to be retried in 1000 ms"
        self.assertEqual(verdict(unpaid, 1), first)
        self.assertEqual(verdict(unpaid, 2), "acked")

    def test_what_is_not_an_order_is_rejected(self) -> None:
        self.assertTrue(verdict("hello", 1).startswith("rejected: not an order"))
        lost = verdict('{"order": "A-3", "status": "lost"}', 1)
        self.assertEqual(lost, "rejected: order A-3 has the unknown status 'lost'")


if __name__ == "__main__":
    unittest.main()
