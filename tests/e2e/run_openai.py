"""Starts `exode serve`, runs test_openai_client.py against it and stops it with SIGTERM.

usage: run_openai.py EXODE MODEL [more arguments of serve…]

Exits 0 only if all checks passed and the server ended with code 0. The server's output is shown
when something failed.
"""

import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

START_SECONDS = 300
STOP_SECONDS = 60
ADDRESS = re.compile(r"listening on (http://\S+:\d+)")


def wait_for_address(process, log):
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        found = ADDRESS.search(pathlib.Path(log).read_text(errors="replace"))
        if found:
            return found.group(1)
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with code {process.returncode} at start")
        time.sleep(0.1)
    raise RuntimeError(f"no 'listening on' line within {START_SECONDS} s")


def wait_for_health(address):
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(address + "/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.1)
    raise RuntimeError("/health never answered 200")


def stop(process):
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise RuntimeError(f"the server ignored SIGTERM for {STOP_SECONDS} s") from None


def run(command, log):
    client = pathlib.Path(__file__).with_name("test_openai_client.py")
    with open(log, "w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        address = wait_for_address(process, log)
        wait_for_health(address)
        checks = subprocess.run([sys.executable, str(client), address + "/v1"], check=False)
        code = stop(process)
    finally:
        if process.poll() is None:
            process.kill()
    if checks.returncode != 0:
        raise RuntimeError("some checks failed")
    if code != 0:
        raise RuntimeError(f"the server ended with code {code} after SIGTERM")
    print("PASS stops with code 0 on SIGTERM")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    exode, model, *more = sys.argv[1:]
    command = [exode, "serve", model, "--host", "127.0.0.1", "--port", "0", *more]
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "server.log"
        try:
            run(command, log)
        except RuntimeError as error:
            print("FAIL", error)
            if log.exists():
                print(log.read_text(errors="replace")[-8000:])
            sys.exit(1)


if __name__ == "__main__":
    main()
