"""Pawl inside the frameworks that people train with: one module each."""
