"""The parts of tools/test.py: what it runs, how it counts, and what it remembers."""
