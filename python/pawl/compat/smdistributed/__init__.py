"""Amazon SageMaker's ``smdistributed``: of its packages, ``dataparallel``. See docs/smddp.md."""
