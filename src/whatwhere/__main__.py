"""The program `whatwhere`. Signals end it quietly from here on, also while modules are imported."""

import os
import signal
import sys
import threading
from typing import NoReturn

INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM


def main() -> None:
    """Run the program. A signal raises an exception, so that temporary files are removed, and is the exit status.

    An import that is interrupted may turn that exception into any other one. A command that has been interrupted is not
    interrupted again while it exits.
    """
    received: list[int] = []

    def stop(number: int, frame: object) -> NoReturn:
        received.append(number)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    sys.unraisablehook = lambda error: None if received else sys.__unraisablehook__(error)
    status: object = 0
    try:
        from whatwhere.cli import main as run

        run()
    except BaseException as error:
        status = 128 + received[0] if received else 0
        if isinstance(error, SystemExit):
            status = error.code
        elif not received:
            raise
    if received:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        end_with_threads(status)
    raise SystemExit(status)


def end_with_threads(status: object) -> None:
    """End the process at once if a thread still answers a request of a page.

    The interpreter would end that thread inside C++ (a compiler's, or torch's), which aborts the process.
    """
    if isinstance(status, int) and any(thread.daemon for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
