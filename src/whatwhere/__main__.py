"""The program `whatwhere`. Signals end it quietly from here on, also while modules are imported."""

import signal
import sys
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
    try:
        from whatwhere.cli import main as run

        run()
    except BaseException as error:
        status: object = 128 + received[0] if received else 0
        if isinstance(error, SystemExit):
            status = error.code
        if status not in (INTERRUPTED, TERMINATED):
            raise
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        raise SystemExit(status) from None


if __name__ == "__main__":
    main()
