"""What the authors published, where a copy of it lies beside the project.

Their numbers and samples carry no licence and are not part of the project: experiments look for
``../shared/data/paper``, or where ``ASSAY_PAPER_SAMPLES`` says, and do without where it is absent.
"""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "published_numbers"]

FOLDER = Path(
    os.environ.get("ASSAY_PAPER_SAMPLES")
    or Path(__file__).resolve().parents[2] / "shared" / "data" / "paper"
)


@cache
def published_numbers() -> dict[str, Any]:
    """The numbers behind the paper's figures and tables; empty where they are absent."""
    path = FOLDER / "published_results.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
