"""How much machine code this process has compiled, so that a report can say why an epoch took
long."""

from dataclasses import dataclass


@dataclass
class Compiled:
    """The number of functions that this process has compiled, and not found on disk."""

    functions: int = 0


COMPILED = Compiled()
