"""SMP's names for activation checkpointing."""
