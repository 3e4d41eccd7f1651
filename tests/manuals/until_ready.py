"""`partc`, whose `serve` is stopped as soon as it is ready: 0 where it got so far."""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def main(arguments: list[str]) -> int:
    command = [sys.executable, "-P", "-m", "partc.cli", *arguments]
    if arguments[:1] != ["serve"]:
        return subprocess.run(command).returncode
    process = subprocess.Popen([*command, "--port", "0"], stderr=subprocess.PIPE, text=True, env=os.environ)
    assert process.stderr is not None
    is_ready = False
    for line in process.stderr:
        print(line, end="", file=sys.stderr)
        is_ready = line.endswith("ready\n")
        if is_ready:
            break
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    return 0 if is_ready else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
