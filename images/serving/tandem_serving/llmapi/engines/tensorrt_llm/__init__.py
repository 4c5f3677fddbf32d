"""TensorRT-LLM, by its LLM API.

`kind` is what the model asks of it, `engine` its `LLM` at work, `sampling` a request as `SamplingParams`,
`statistics` its state, `arguments` what no YAML file can hold, `checkpoint_code` the code of checkpoints that it
runs, `dialect` what differs between its versions.
"""

from tandem_serving.llmapi.engine import EngineKind
from tandem_serving.llmapi.engines.tensorrt_llm.kind import TensorRtLlm

__all__ = ["ENGINE", "TensorRtLlm"]

ENGINE: EngineKind = TensorRtLlm()
