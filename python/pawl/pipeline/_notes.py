"""The layouts of what the driver sends to a rank's Python: the heads of calls and notes."""

from __future__ import annotations

import struct
from typing import Final

# A call: number of its recipe, call whose backward pass (or results) it is, random number.
CALL_HEAD: Final = struct.Struct("<IQQ")
RECIPE_HEAD: Final = struct.Struct("<BI")  # NOTE_RECIPE, number of the recipe; the recipe follows
NOTE_RECIPE: Final = 0
NOTE_RESULT: Final = 1  # the step's results follow
NOTE_FORGET: Final = 3  # all recipes so far are forgotten
NOTE_FINAL: Final = 2  # how many backward calls each unit gets in this step follows
FORWARD: Final = 0  # kinds of tasks, as in include/pawl/pipe.h
BACKWARD: Final = 1
INPUTS: Final = 2  # a backward pass of which the gradients of parameters come later
PARAMETERS: Final = 3
