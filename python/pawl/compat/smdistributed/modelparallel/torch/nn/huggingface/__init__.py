"""Translations of state_dicts: here, models keep the names that transformers gives them."""
