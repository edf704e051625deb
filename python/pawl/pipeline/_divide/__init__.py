"""How a model is divided: its modules are measured, units chosen, and a plan made."""
