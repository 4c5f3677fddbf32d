"""How many tokens to draft. Pure. Only `bls` imports it: `policy` is what its scheduler asks."""
