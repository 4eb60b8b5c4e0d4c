"""What benchmarks measured: entries of results/logs.json, by name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOGS = Path(__file__).parent / "results" / "logs.json"


@dataclass(frozen=True)
class Log:
    """One entry: plain values."""

    name: str

    def read(self, default: Any = None) -> Any:
        """What the last measurement wrote; `default` if there was none."""
        return json.loads(LOGS.read_text(encoding="utf-8")).get(self.name, default)

    def write(self, content: Any) -> None:
        logs = json.loads(LOGS.read_text(encoding="utf-8")) | {self.name: content}
        LOGS.write_text(json.dumps(logs, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
