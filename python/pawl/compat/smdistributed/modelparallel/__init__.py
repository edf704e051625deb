"""Amazon SageMaker's model parallel library (SMP): ``modelparallel.torch``. See docs/smp.md."""

__version__ = "1.15.0"  # the release whose names these are; transformers compares it with 1.10
