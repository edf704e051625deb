"""adaptdl for where no .pth file is read: PYTHONPATH names this folder (docs/compat.md)."""

import _pawl_compat

_pawl_compat.stand_in(__name__)
