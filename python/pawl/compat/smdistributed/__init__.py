"""Amazon SageMaker's ``smdistributed``: ``dataparallel`` (docs/smddp.md) and
``modelparallel`` (docs/smp.md)."""
