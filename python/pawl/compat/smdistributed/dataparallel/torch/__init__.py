"""SMDDP for PyTorch: ``distributed`` and ``parallel`` up to 1.3, ``torch_smddp`` from 1.4 on."""
