"""SageMaker's library of data parallelism, SMDDP; of its frameworks, ``torch``."""
