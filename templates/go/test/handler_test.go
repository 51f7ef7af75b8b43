// Package test builds the handler and gives it messages by `dqhost run`.
package test

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	build := exec.Command("sh", "build.sh")
	build.Dir = ".."
	build.Stderr = os.Stderr
	if build.Run() != nil {
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// The verdict on a payload in an attempt.
func verdict(t *testing.T, payload string, attempt int) string {
	// dqhost must be in a folder of PATH.
	run := exec.Command("dqhost", "run", "../build/handler.wasm", "--allow-send", "mails",
		"--payload", payload, "--attempt", strconv.Itoa(attempt))
	run.Stderr = os.Stderr
	// It fails if the message is not acked.
	told, _ := run.Output()
	for line := range strings.Lines(string(told)) {
		if verdict, is := strings.CutPrefix(line, "verdict "); is {
			return strings.TrimSpace(verdict)
		}
	}
	t.Fatal("dqhost run tells no verdict")
	return ""
}

func TestVerdicts(t *testing.T) {
	unpaid := `{"order": "A-2", "status": "unpaid"}`
	for _, c := range []struct {
		payload string
		attempt int
		start   string
	}{
		{`{"order": "A-1", "status": "paid"}`, 1, "acked"},
		{unpaid, 1, "nacked: order A-2 is not paid yet, to be retried in 1000 ms"},
		{unpaid, 2, "acked"},
		{"hello", 1, "rejected: not an order"},
		{`{"order": "A-3", "status": "lost"}`, 1, `rejected: order A-3 has the unknown status "lost"`},
	} {
		if told := verdict(t, c.payload, c.attempt); !strings.HasPrefix(told, c.start) {
			t.Errorf("%s: %s, not %s", c.payload, told, c.start)
		}
	}
}
