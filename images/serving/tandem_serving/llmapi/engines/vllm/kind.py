"""vLLM as a kind of engine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandem_serving import checkpoint
from tandem_serving.checkpoint import ModelLimits, read_limits
from tandem_serving.llmapi.arguments import ArgumentsError
from tandem_serving.llmapi.engine import ArgumentsRefused
from tandem_serving.llmapi.engines.vllm import names
from tandem_serving.llmapi.engines.vllm.engine import VllmEngine, prepare
from tandem_serving.llmapi.engines.vllm.group import placed, run_ranks, tell_own_address
from tandem_serving.llmapi.request import Features
from tandem_serving.llmapi.statistics import FAMILIES, EngineFamilies

LORA_DIRS = "lora_dirs"
"""Of the arguments, the only one that is not vLLM's: folders whose adapters requests may name."""

REQUEST_METRICS = "per_request_spec_decode_metrics"
"""An argument of newer versions, by which each sequence says how many of its drafts were accepted."""


class Vllm:
    """An EngineKind."""

    name = "vLLM"
    families: EngineFamilies = FAMILIES

    def limits(self, arguments: Mapping[str, Any]) -> ModelLimits:
        """As EngineKind says: `max_model_len` may not be above the model's own."""
        return read_limits(Path(arguments["model"])).at_most(int(arguments.get("max_model_len") or 0))

    def features(self, arguments: Mapping[str, Any]) -> Features:
        """As EngineKind says: it always guides, and gives log probabilities of prompts."""
        folders = arguments.get(LORA_DIRS) or () if arguments.get("enable_lora") else ()
        return Features(True, prompt_log_probs=True, lora_dirs=tuple(Path(folder).resolve() for folder in folders))

    def reports_drafts(self, arguments: Mapping[str, Any]) -> bool:
        """As EngineKind says: its scheduler counts drafts, by position."""
        return False

    def with_drafter(
        self, arguments: Mapping[str, Any], drafter: object, resource_manager: object | None
    ) -> dict[str, Any]:
        """As EngineKind says: it takes none."""
        raise ArgumentsError("vLLM takes no drafter of yours: remove speculation.userProvided")

    def split(self, arguments: Mapping[str, Any]) -> tuple[int, int]:
        """As EngineKind says."""
        return arguments.get("tensor_parallel_size") or 1, arguments.get("pipeline_parallel_size") or 1

    def missing_code(self, folders: Mapping[str, Path], arguments: Mapping[str, Any]) -> str:
        """As EngineKind says: with trust_remote_code it runs that of all checkpoints, otherwise of none."""
        for role, folder in folders.items() if arguments.get("trust_remote_code") else ():
            if file := checkpoint.missing_code(folder, checkpoint.read_json(folder / "config.json")):
                return (
                    f"{role}: config.json refers to {file} (auto_map), which is not in {folder}: downloads bring no "
                    "code; mount the model with its code (pvc://, oci://), if you trust it, or remove "
                    "runtime.extraLlmArgs.trust_remote_code"
                )
        return ""

    def dry_run(self, arguments: Mapping[str, Any]) -> None:
        """As EngineKind says, by vLLM's own configuration."""
        self._config(placed(arguments, os.environ))

    def run_ranks(self, arguments: Mapping[str, Any]) -> None:
        """As EngineKind says, as `vllm serve --headless` does it."""
        run_ranks(self._config(placed(arguments, os.environ), headless=True))

    def load(self, arguments: Mapping[str, Any]) -> VllmEngine:
        """As EngineKind says."""
        config = self._config(placed(arguments, os.environ))
        if config.parallel_config.nnodes > 1:
            tell_own_address(config.parallel_config.master_addr, config.parallel_config.master_port)
        return VllmEngine(config, self.name, self.families)

    def _config(self, arguments: Mapping[str, Any], *, headless: bool = False) -> Any:
        prepare()
        from vllm.engine.arg_utils import AsyncEngineArgs

        given = {name: value for name, value in names.neutral(arguments).items() if name != LORA_DIRS}
        if given.get("speculative_config") and REQUEST_METRICS in AsyncEngineArgs.__dataclass_fields__:
            given.setdefault(REQUEST_METRICS, "summary")
        given["disable_log_stats"] = False  # they are the metrics
        try:
            return AsyncEngineArgs(**given).create_engine_config(headless=headless)
        except (ValueError, TypeError) as error:  # pydantic's are ValueErrors
            raise ArgumentsRefused(
                f"{self.name} of this image refuses the arguments: {error}; change the field, or runtime.extraLlmArgs"
            ) from None
