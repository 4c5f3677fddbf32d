"""What both modes do with a request: tensors read, prompts tokenized, text made of tokens, responses delivered.
`bls`, `llmapi`, `prepare` (for the tokenizer) and `adapter` import it.
"""
