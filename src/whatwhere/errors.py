"""The errors a person can mend: each says what was given, what was expected and what to do."""


class WhatwhereError(Exception):
    """Base of every error that whatwhere raises on purpose."""


class SpecError(WhatwhereError, ValueError):
    """A setting that cannot be."""


class ImageError(WhatwhereError, ValueError):
    """Images that the model cannot explain, or a file that does not hold any."""


class RunError(WhatwhereError):
    """A run, a checkpoint or a saved model that cannot be used."""


class EngineError(WhatwhereError):
    """An engine that cannot serve what was asked of it."""


class MissingExtra(WhatwhereError, ImportError):
    """A part that needs a package which is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed: pip install 'whatwhere[{extra}]'")
