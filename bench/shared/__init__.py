"""What benchmarks share. Programs that a benchmark starts import it, too: by PYTHONPATH."""

import os
from pathlib import Path

BENCH = str(Path(__file__).parents[1])
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [BENCH, os.environ.get("PYTHONPATH")]))
