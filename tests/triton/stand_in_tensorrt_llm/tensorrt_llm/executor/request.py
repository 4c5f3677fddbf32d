"""What goes with a request."""

import os
from dataclasses import dataclass


@dataclass(slots=True)
class LoRARequest:
    """A LoRA adapter; the stand-in checks it and then ignores it."""

    lora_name: str
    lora_int_id: int
    lora_path: str = ""
    lora_ckpt_source: str = "hf"

    def __post_init__(self) -> None:
        if not os.path.exists(self.lora_path):  # noqa: PTH110 (as upstream)
            raise ValueError(f"lora_path ({self.lora_path}) does not exist.")
