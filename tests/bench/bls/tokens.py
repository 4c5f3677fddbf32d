"""The made-up model behind the stub engine: tokens by hashing, so that nothing needs to be computed.

The true token at absolute position p of a sequence is a hash of (key, p), the key a hash of the prompt's
first tokens. The draft's token is the true one with probability alpha, by a second hash of (key, p). So
acceptance is alpha at each position, whatever the schedule, and whoever knows the prompt knows the output.
"""

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
Ids = npt.NDArray[np.int32]

KEY_TOKENS = 16  # prompts are at least this long, and differ in these
FIRST, LAST = 300, 2000  # ids of whole words in the pair's vocabulary: no end id among them
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_COIN = np.uint64(0xD1B54A32D192ED03)
_POWERS = np.cumprod(np.full(KEY_TOKENS, 0x100000001B3, np.uint64))


def mix(z: U64) -> U64:
    """The SplitMix64 finaliser (Steele et al., 2014), element by element."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def keys(ids: Ids) -> U64:
    """The keys uint64[B] of sequences int32[B, n], n >= KEY_TOKENS, by their first tokens."""
    head: U64 = ids[:, :KEY_TOKENS].astype(np.uint64)
    return mix((head * _POWERS).sum(1, dtype=np.uint64))


def true_tokens(key: U64, positions: npt.NDArray[np.int64]) -> Ids:
    """The target's tokens int32[B, m] at positions int[B, m]."""
    hashed = mix(key[:, None] + positions.astype(np.uint64) * _GOLDEN)
    return (FIRST + hashed % np.uint64(LAST - FIRST)).astype(np.int32)


def agrees(key: U64, positions: npt.NDArray[np.int64], alpha: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Whether the draft's token is the true one, bool[B, m], with probabilities alpha float64[B]."""
    hashed = mix((key[:, None] ^ _COIN) + positions.astype(np.uint64) * _COIN)
    return (hashed >> np.uint64(11)) * 2.0**-53 < alpha[:, None]


def alpha_of(key: U64, alphas: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Each sequence's acceptance: with several, its key says which."""
    return alphas[(key % np.uint64(len(alphas))).astype(np.int64)]
