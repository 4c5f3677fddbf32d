"""TensorRT-LLM as a kind of engine, and of packages with its modules and signatures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tandem_serving.checkpoint import ModelLimits, read_limits
from tandem_serving.llmapi.arguments import ArgumentsError
from tandem_serving.llmapi.engine import ArgumentsRefused
from tandem_serving.llmapi.engines.tensorrt_llm import arguments as own_arguments
from tandem_serving.llmapi.engines.tensorrt_llm import checkpoint_code, dialect, statistics
from tandem_serving.llmapi.engines.tensorrt_llm.engine import TensorRtLlmEngine
from tandem_serving.llmapi.request import Features
from tandem_serving.llmapi.statistics import EngineFamilies


@dataclass(frozen=True)
class TensorRtLlm:
    """An EngineKind. `package`: where `LLM` is; `families`: of the engine's state."""

    name: str = "TensorRT-LLM"
    package: str = "tensorrt_llm"
    families: EngineFamilies = statistics.FAMILIES

    def limits(self, arguments: Mapping[str, Any]) -> ModelLimits:
        """As EngineKind says: TensorRT-LLM takes a `max_seq_len` beyond the model's own, too."""
        own, asked = read_limits(Path(arguments["model"])), int(arguments.get("max_seq_len") or 0)
        return replace(own, max_sequence_len=asked) if asked else own

    def features(self, arguments: Mapping[str, Any]) -> Features:
        """As EngineKind says."""
        lora = arguments.get("lora_config") or {}
        return Features(
            guided_decoding=bool(arguments.get("guided_decoding_backend")),
            lora_dirs=tuple(Path(folder).resolve() for folder in lora.get("lora_dir") or ()),
        )

    def reports_drafts(self, arguments: Mapping[str, Any]) -> bool:
        """As EngineKind says."""
        return bool(arguments.get("speculative_config"))

    def with_drafter(
        self, arguments: Mapping[str, Any], drafter: object, resource_manager: object | None
    ) -> dict[str, Any]:
        """As EngineKind says."""
        return own_arguments.with_drafter(arguments, drafter, resource_manager)

    def split(self, arguments: Mapping[str, Any]) -> tuple[int, int]:
        """As EngineKind says."""
        tensor = 1 if arguments.get("enable_attention_dp") else arguments.get("tensor_parallel_size") or 1
        return tensor, arguments.get("pipeline_parallel_size") or 1

    def missing_code(self, folders: Mapping[str, Path], arguments: Mapping[str, Any]) -> str:
        """As EngineKind says."""
        return checkpoint_code.missing(folders, bool(arguments.get("trust_remote_code")))

    def dry_run(self, arguments: Mapping[str, Any]) -> None:
        """As EngineKind says, by the image's own argument class."""
        found = dialect.argument_class(self.package)
        try:
            found(**dialect.llm_arguments(own_arguments.with_any_drafter(arguments), self.package))
        except (ValueError, TypeError) as error:  # pydantic's are ValueErrors
            raise ArgumentsRefused(
                f"{self.name} of this image refuses the arguments: {error}; change the field, or runtime.extraLlmArgs"
            ) from None

    def run_ranks(self, arguments: Mapping[str, Any]) -> None:
        """As EngineKind says: mpirun does."""
        raise ArgumentsError(f"the leader of a group starts the ranks of {self.name}: apply the resource again")

    def load(self, arguments: Mapping[str, Any]) -> TensorRtLlmEngine:
        """As EngineKind says."""
        return TensorRtLlmEngine(arguments, self.package, self.name, self.families)
