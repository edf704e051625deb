"""Translations of GPT-2's state_dict, which change nothing."""

from __future__ import annotations

from typing import Any


def translate_hf_state_dict_to_smdistributed_gpt2(state_dict: Any, *_: Any, **__: Any) -> Any:
    """The state_dict itself."""
    return state_dict


def translate_state_dict_to_hf_gpt2(state_dict: Any, *_: Any, **__: Any) -> Any:
    """The state_dict itself."""
    return state_dict
