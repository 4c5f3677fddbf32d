"""vLLM, by its `AsyncLLM`.

`kind` is what the model asks of it, `engine` its engine at work, `sampling` a request as `SamplingParams`,
`statistics` what its scheduler reports, `errors` what its processes log, `names` folders whose names would decide how
it drafts.
"""

from __future__ import annotations

from tandem_serving.llmapi.engine import EngineKind
from tandem_serving.llmapi.engines.vllm.kind import Vllm

__all__ = ["ENGINE"]

ENGINE: EngineKind = Vllm()
