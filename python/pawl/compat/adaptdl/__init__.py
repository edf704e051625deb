"""AdaptDL's ``adaptdl``, as of 0.2.11: its library for training. See docs/elastic.md."""

from pawl.compat.adaptdl import checkpoint, collective, env, goodput, reducer, sched_hints
from pawl.elastic._start import VERSION as __version__

__all__ = ["__version__", "checkpoint", "collective", "env", "goodput", "reducer", "sched_hints"]
