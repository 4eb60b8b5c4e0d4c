"""The program `whatwhere`. Signals end it quietly from here on, also while modules are imported."""

import os
import signal
import sys
import threading
from typing import NoReturn


def main() -> None:
    """Run the program. A signal raises an exception, so that temporary files are removed, and sets
    the exit status.

    An interrupted import may turn that exception into any other one.
    """
    # Threads of PyTorch that wait for each other would keep the cores from other programs: beside
    # others, a picture took six times the processor time. Read when PyTorch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    received: list[int] = []

    def stop(number: int, frame: object) -> NoReturn:
        received.append(number)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    sys.unraisablehook = lambda error: None if received else sys.__unraisablehook__(error)
    status: object = 0
    try:
        from whatwhere.app import main as run

        run()
    except BaseException as error:
        if not received:
            raise
        status = error.code if isinstance(error, SystemExit) else 128 + received[0]
    if (
        received
        and isinstance(status, int)
        and any(thread.daemon for thread in threading.enumerate())
    ):
        # a thread that still answers a page would be ended inside C++, which aborts the process
        sys.stdout.flush()
        os._exit(status)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
