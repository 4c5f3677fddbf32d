"""The LLM-API model: TensorRT-LLM's `LLM` behind upstream's tensors, with batches, deltas and metrics, without
Triton. `adapter` imports it, and `prepare`, which checks the arguments of `LLM`.

Its layers: `service` (requests), `tasks` (a sequence each, on an asyncio loop), `engine` and `dialect` (the only
modules that know `tensorrt_llm`; what differs between its versions is in `dialect`), `meter` (counts), `outputs`
(chunks as tensors), `chunks` (tokens to text), `request` (tensors to prompts), `arguments` (llm_args.yaml, a drafter
of the user's), `settings` (config.pbtxt).
"""
