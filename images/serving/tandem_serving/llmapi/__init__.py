"""The LLM-API model: an engine's own API behind upstream's tensors, with batches, deltas and metrics, without Triton.
`adapter` imports it, and `prepare`, which checks the engine's arguments.

Its layers: `service` (requests), `tasks` (a sequence each, on an asyncio loop), `engine` (the seam to an engine),
`engines` (a module for each kind of engine, found by its name; nothing else knows one), `suspects` (requests that end
the engine), `meter` (counts), `outputs`
(chunks as tensors), `chunks` (tokens to text), `request` (tensors to prompts), `arguments` (llm_args.yaml, a drafter
of the user's), `settings` (config.pbtxt).
"""
