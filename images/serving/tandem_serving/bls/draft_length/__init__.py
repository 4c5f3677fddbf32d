"""How many tokens to draft: the length with the most tokens a second, from what is observed. Pure. Only `bls` imports
it: `policy` is what its scheduler asks.
"""
