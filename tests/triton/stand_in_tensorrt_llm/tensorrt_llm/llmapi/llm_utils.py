"""Arguments."""

from typing import Any


def update_llm_args_with_extra_dict(
    llm_args: dict[str, Any], llm_args_dict: dict[str, Any], extra_llm_api_options: str | None = None
) -> dict[str, Any]:
    """Both together; upstream makes objects of some mappings too."""
    return llm_args | llm_args_dict
