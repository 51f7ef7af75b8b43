#!/usr/bin/env python3
"""Measures the new handler of each language: what a build takes, a load, and a message.

    benches/languages.py target/release/dqhost [--tools target/tools] [--rounds 3] [LANGUAGE...]

It prints a row for each language: the medians of the rounds. Measure on a quiet machine.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 1000
PAID = '{"order": "A-1", "status": "paid"}'
# Before the first build.
SETUP = {
    "js": "npm install --silent --no-audit --no-fund",
    "ts": "npm install --silent --no-audit --no-fund",
    "python": "python3 -m venv .venv && .venv/bin/pip install -q -r requirements.txt",
}
SOURCES = {
    "rust": "src/lib.rs",
    "c": "handler.c",
    "go": "export_dqhost_queue_handler/handler.go",
    "js": "handler.js",
    "ts": "handler.ts",
    "python": "app.py",
}
SLOTS = [2, 64]


def run(command, folder, environment, code=0):
    """What a command of the shell prints."""
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environment, text=True, capture_output=True
    )
    if done.returncode != code:
        sys.exit(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def peak_mib(command, folder, environment):
    """Seconds of a host, and the largest resident memory of it in MiB."""
    started = time.monotonic()
    host = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(host.pid, 0)
    host.returncode = os.waitstatus_to_exitcode(status)
    if host.returncode != 0:
        sys.exit(f"{command}: exit code {host.returncode}")
    return time.monotonic() - started, usage.ru_maxrss / 1024


def drained(dqhost, folder, environment, file, slots, messages):
    """Messages a second of a host with this many slots, and its memory in MiB."""
    store = f"drain-{slots}.db"
    lines = "".join(json.dumps({"payload": json.loads(PAID)}) + "\n" for _ in range(messages))
    (folder / "drain.ndjson").write_text(lines)
    run(f"dqhost send --db {store} --ndjson @drain.ndjson", folder, environment)
    host = [dqhost, "--db", store, "--handler", file, "--slots", str(slots)]
    host += ["--limit", "compile-time=5m", "--log", "error", "--no-tui", "--exit-when-empty"]
    seconds, mib = peak_mib(host, folder, environment)
    os.remove(folder / store)
    return messages / seconds, mib


def saved(language, folder, environment):
    """Seconds from a save to the verdicts of all messages, as `dqhost dev` shows them."""
    dev = subprocess.Popen(
        ["dqhost", "dev", "--limit", "compile-time=5m"],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        wait_for(dev.stdout, "waiting for a save")
        started = time.monotonic()
        change(folder, language)
        wait_for(dev.stdout, "  3  rejected")
        return time.monotonic() - started
    finally:
        dev.kill()
        dev.wait()


def wait_for(lines, text):
    if not any(text in line for line in lines):
        sys.exit(f"dqhost dev ended before it said {text}")


def change(folder, language):
    """Saves another text in the handler, which changes what is built."""
    source = folder / SOURCES[language]
    source.write_text(source.read_text().replace("is paid", "is paid!", 1))


def measured(dqhost, language, folder, environment):
    """The figures of one language in a folder with its handler."""
    figures = {}
    manifest = (folder / "handler.toml").read_text()
    file = re.search(r'^file = "(.*)"', manifest, re.M)[1]
    once = "dqhost dev --once --limit compile-time=5m"
    for _ in ["the first build", "another one"]:
        shutil.rmtree(folder / "cache", ignore_errors=True)
        change(folder, language)
        told = run(once, folder, environment, 1)
        built, loaded = re.search(r"built in ([\d.]+) s, loaded in ([\d.]+) s", told).groups()
    figures["build s"], figures["quick load s"] = float(built), float(loaded)
    # What a host compiles is compiled in full, which is what `check` does.
    for load in ["cold load s", "warm load s"]:
        began = time.monotonic()
        run(f"dqhost check {file} --limit compile-time=5m", folder, environment)
        figures[load] = time.monotonic() - began
    figures["save to verdict s"] = saved(language, folder, environment)
    figures["bytes"] = (folder / file).stat().st_size
    table = run(
        f"taskset -c 0 dqhost run {file} --limit compile-time=5m --payload '{PAID}' --repeat {RUNS}",
        folder,
        environment,
    )
    columns = table.splitlines()[1].split()
    figures["p50 ms"], figures["p99 ms"] = float(columns[2]), float(columns[3])
    figures["linear memory MiB"] = float(columns[5]) / 1024
    messages = min(20000, int(4000 / figures["p50 ms"]))
    rates = {slots: drained(dqhost, folder, environment, file, slots, messages) for slots in SLOTS}
    few, many = SLOTS
    figures["messages/s"] = rates[few][0]
    figures["host MiB"] = rates[few][1]
    figures["MiB a slot"] = (rates[many][1] - rates[few][1]) / (many - few)
    return figures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dqhost")
    parser.add_argument("--tools", default="target/tools")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("languages", nargs="*", default=list(SOURCES))
    args = parser.parse_intermixed_args()
    dqhost, tools = Path(args.dqhost).resolve(), Path(args.tools).resolve()
    columns = None
    for language in args.languages:
        rounds = []
        for _ in range(args.rounds):
            with tempfile.TemporaryDirectory() as place:
                place = Path(place)
                (place / "bin").mkdir()
                (place / "bin/dqhost").symlink_to(dqhost)
                folder = place / "measured"
                environment = dict(os.environ)
                environment["PATH"] = f"{place}/bin:{tools}/go/go/bin:{os.environ['PATH']}"
                environment["XDG_CACHE_HOME"] = str(folder / "cache")
                environment["GOCACHE"] = str(tools / "go-cache")
                environment["npm_config_cache"] = str(tools / "npm")
                environment["PIP_FIND_LINKS"] = str(tools / "pip")
                run(f"dqhost new measured --lang {language}", place, environment)
                if language in SETUP:
                    run(SETUP[language], folder, environment)
                rounds.append(measured(str(dqhost), language, folder, environment))
        if columns is None:
            columns = list(rounds[0])
            print("| language | " + " | ".join(columns) + " |")
            print("|---|" + "---|" * len(columns))
        medians = [statistics.median(figures[column] for figures in rounds) for column in columns]
        texts = [f"{value:,.0f}" if value >= 100 else f"{value:.2g}" for value in medians]
        print(f"| {language} | " + " | ".join(texts) + " |", flush=True)


main()
