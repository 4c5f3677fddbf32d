"""Device code: which token each row of logits yields; `sampling` launches it.

Rows are split over programs: a row of a large vocabulary would keep one processor busy for long. What the parts of a
row have found, the next kernel joins.
"""

import triton.language as tl

import triton
from reference_engine.torch_backend.kernels import follow

FIELDS = tl.constexpr(6)  # of a sampled row: row, top_k, seed, position, and the bits of temperature and top_p
BITS = tl.constexpr(5)  # of the least weight, that a round finds
WAYS = tl.constexpr(32)
ROUNDS = tl.constexpr(6)  # weights are in [0, 1], their bits below 2 ** 30
_CHUNK = tl.constexpr(128)
_NO_ID = tl.constexpr(2147483647)


@triton.jit
def feed(ids, chosen, count, BLOCK: tl.constexpr, CHAINED: tl.constexpr):
    """Tokens that the last pass chose, in place of ids below 0: -1 is its first row's, and so on."""
    follow(CHAINED)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(ids + at, at < count, 0)
    fed = (at < count) & (token < 0)
    tl.store(ids + at, tl.load(chosen + (-1 - token), fed, 0), fed)


@triton.jit
def tops(logits, values, best, ids, vocabulary, BLOCK: tl.constexpr, CHAINED: tl.constexpr):
    """A program a row and part of the vocabulary: its logits are copied, the highest is the part's best."""
    follow(CHAINED)
    row, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(logits + row * vocabulary + at, at < vocabulary, float("-inf")).to(tl.float32)
    tl.store(values + row * vocabulary + at, value, at < vocabulary)
    _store_best(value, at, best + row * parts + part, ids + row * parts + part)


@triton.jit
def _store_best(value, at, best, ids):
    """The highest of a part, of equals the lowest id."""
    top = tl.max(value, 0)
    tl.store(best, top)
    tl.store(ids, tl.min(tl.where(value == top, at, _NO_ID), 0))


@triton.jit
def winner(best, ids, given, chosen, parts, SAMPLED: tl.constexpr, PARTS: tl.constexpr, CHAINED: tl.constexpr):
    """A program a row, that `given` names where only some are drawn: the best of its parts is chosen."""
    follow(CHAINED)
    program, part = tl.program_id(0), tl.arange(0, PARTS)
    value = tl.load(best + program * parts + part, part < parts, float("-inf"))
    number = tl.load(ids + program * parts + part, part < parts, _NO_ID)
    row = program
    if SAMPLED:
        row = tl.load(given + program * FIELDS).to(tl.int32)
    tl.store(chosen + row, tl.min(tl.where(value == tl.max(value, 0), number, _NO_ID), 0))


@triton.jit
def _weights(logits, chosen, given, program, at, vocabulary):
    """Of a sampled row at these ids, the highest 1; `chosen` has the id of the highest logit."""
    row = tl.load(given + program * FIELDS)
    temperature = tl.load(given + program * FIELDS + 4).to(tl.int32).to(tl.float32, bitcast=True)
    base = logits + row * vocabulary
    top = tl.load(base + tl.load(chosen + row))
    return tl.exp((tl.load(base + at, at < vocabulary, float("-inf")) - top) / temperature)


@triton.jit
def _narrowed(given, lows, wants, sums, program, parts, done, BY_MASS: tl.constexpr, PARTS: tl.constexpr):
    """When so many rounds are done: bits that the least weight that stays has at least, and what must stay of all."""
    low, want = tl.full([], 0, tl.int32), tl.full([], float("inf"), tl.float32)
    if done > 0:
        part, way = tl.arange(0, PARTS)[:, None], tl.arange(0, WAYS)
        last = sums + ((done - 1) % 2 * tl.num_programs(0) + program) * parts * WAYS
        amounts = tl.sum(tl.load(last + part * WAYS + way[None, :], part < parts, 0.0), 0)
        if done > 1:
            want = tl.load(wants + program * ROUNDS + done - 1)
        elif BY_MASS:
            share = tl.load(given + program * FIELDS + 5).to(tl.int32).to(tl.float32, bitcast=True)
            want = tl.where((share > 0) & (share < 1), share * tl.max(amounts, 0), want)
        else:
            count = tl.load(given + program * FIELDS + 1).to(tl.float32)
            want = tl.where(count > 0, count, want)
        enough = tl.maximum(tl.sum((amounts >= want).to(tl.int32), 0) - 1, 0)
        low = tl.load(lows + program * ROUNDS + done - 1) + (enough << BITS * (ROUNDS - done))
    return low, want


@triton.jit(do_not_specialize=["done"])
def narrow(logits, chosen, given, lows, wants, sums, kept_lows, kept_wants, kept_sums, vocabulary, done,
           BY_MASS: tl.constexpr, KEPT: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """A round of the search for the least weight that stays: how much is as heavy as each of WAYS weights.

    A program a row and part. A weight's bits, as a whole number, rise with it. `BY_MASS`: for top-p, among the
    weights that top-k has kept (`KEPT`); else for top-k.
    """
    program, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    weight = _weights(logits, chosen, given, program, at, vocabulary)  # under way while the last round's sums come
    low, want = _narrowed(given, lows, wants, sums, program, parts, done, BY_MASS, PARTS)
    if part == 0:
        tl.store(lows + program * ROUNDS + done, low)
        tl.store(wants + program * ROUNDS + done, want)
    kept = tl.full([], 0, tl.int32)
    if KEPT:
        kept, _ = _narrowed(given, kept_lows, kept_wants, kept_sums, program, parts, ROUNDS, False, PARTS)
    step = BITS * (ROUNDS - 1 - done)
    bits = weight.to(tl.int32, bitcast=True)
    stays = (bits >= kept) & (at < vocabulary)
    into = sums + ((done % 2 * tl.num_programs(0) + program) * parts + part) * WAYS + tl.arange(0, WAYS)
    high = low + (WAYS << step)
    if tl.sum((stays & (bits >= low) & (bits < high)).to(tl.int32), 0) == 0:
        amount = tl.sum(tl.where(stays & (bits >= high), weight if BY_MASS else 1.0, 0.0), 0)
        tl.store(into, amount + tl.zeros([WAYS], tl.float32))
        return
    least = tl.maximum(low + (tl.arange(0, WAYS) << step), kept)
    total = tl.zeros([WAYS, _CHUNK], tl.float32)
    for start in range(part * BLOCK, tl.minimum((part + 1) * BLOCK, vocabulary), _CHUNK):
        some = start + tl.arange(0, _CHUNK)
        each = _weights(logits, chosen, given, program, some, vocabulary)
        heavy = (each.to(tl.int32, bitcast=True)[None, :] >= least[:, None]) & (some < vocabulary)[None, :]
        total += tl.where(heavy, each[None, :] if BY_MASS else 1.0, 0.0)
    tl.store(into, tl.sum(total, 1))


@triton.jit
def _mixed(x):
    """The finalizer of SplitMix64 (Steele et al. 2014): every bit of x moves every bit of the result."""
    x = x.to(tl.uint64)
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def race(logits, chosen, given, counts, counted, counting, masses, weighed, weighing, best, ids, vocabulary,
         BY_COUNT: tl.constexpr, BY_MASS: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """A program a row and part: among the weights that stay, the fastest is the part's best."""
    program, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    least = tl.full([], 0, tl.int32)
    if BY_COUNT:
        least, _ = _narrowed(given, counts, counted, counting, program, parts, ROUNDS, False, PARTS)
    if BY_MASS:
        heaviest, _ = _narrowed(given, masses, weighed, weighing, program, parts, ROUNDS, True, PARTS)
        least = tl.maximum(least, heaviest)
    at = part * BLOCK + tl.arange(0, BLOCK)
    weight = _weights(logits, chosen, given, program, at, vocabulary)
    stays = (weight.to(tl.int32, bitcast=True) >= least) & (at < vocabulary)
    seed, position = tl.load(given + program * FIELDS + 2), tl.load(given + program * FIELDS + 3)
    stream = _mixed(_mixed(seed.to(tl.uint64) + 0x9E3779B97F4A7C15) ^ position.to(tl.uint64))
    number = _mixed(stream + at.to(tl.uint64) * 0x9E3779B97F4A7C15)
    share = ((number >> 40).to(tl.float32) + 0.5) * (1.0 / 16777216.0)  # in (0, 1)
    pace = tl.where(stays, weight / -tl.log(share), -1.0)
    _store_best(pace, at, best + program * parts + part, ids + program * parts + part)
