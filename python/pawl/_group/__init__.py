"""The process group for torch.distributed. Users import `pawl.distributed`, or only name the
backend "pawl"."""
