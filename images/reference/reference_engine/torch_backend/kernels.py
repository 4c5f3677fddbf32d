"""Device code: keys and values into their slots, attention over them, and products of few rows.

Triton compiles these functions; `attention` and `linear` launch them. `CHAINED`: the kernel is launched
before the one ahead of it has ended (programmatic dependent launch), and waits for it in `follow`.
"""

import triton.language as tl

import triton


@triton.jit
def follow(CHAINED: tl.constexpr):
    """Let the next kernel's programs come, wait for the results of the last."""
    if CHAINED:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


@triton.jit
def store(
    key, value, keys, values, slots, positions,
    key_head, key_row, key_width, value_head, value_row, value_width, cache_slot, cache_head, heads, width,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """A program a row."""
    follow(CHAINED)
    row = tl.program_id(0)
    head, at = tl.arange(0, HEADS)[:, None], tl.arange(0, WIDTH)[None, :]
    inside = (head < heads) & (at < width)
    to = tl.load(slots + row).to(tl.int64) * cache_slot + head * cache_head + tl.load(positions + row) * width + at
    tl.store(keys + to, tl.load(key + head * key_head + row * key_row + at * key_width, inside), inside)
    tl.store(values + to, tl.load(value + head * value_head + row * value_row + at * value_width, inside), inside)


@triton.jit
def attend(
    query, keys, values, out, partial, sums, slots, positions, tile_row, tile_count,
    query_head, query_row, query_width, cache_slot, cache_head, out_row, out_head,
    scale, softcap, window, width, group, entries,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, SPLITS: tl.constexpr, BLOCK: tl.constexpr,
    CAPPED: tl.constexpr, WINDOWED: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """A program a tile, kv head and split; its rows are the tile's tokens by the group's query heads."""
    follow(CHAINED)
    tile, kv, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    count = tl.load(tile_count + tile)
    if count == 0:
        return
    first = tl.load(tile_row + tile)
    start = tl.load(positions + first)
    base = tl.load(slots + first).to(tl.int64) * cache_slot + kv * cache_head
    row = tl.arange(0, ROWS)
    token, head = row // group, kv * group + row % group
    real = token < count
    at = tl.arange(0, WIDTH)
    inside = at < width
    q = tl.load(
        query + head[:, None] * query_head + (first + token)[:, None] * query_row + at[None, :] * query_width,
        real[:, None] & inside[None, :], 0.0,
    )  # fmt: skip
    low, end = 0, start + count
    if WINDOWED:
        low = tl.maximum(0, start - window + 1) // BLOCK * BLOCK
    share = tl.cdiv(tl.cdiv(end - low, SPLITS), BLOCK) * BLOCK
    low = low + split * share
    high = tl.minimum(low + share, end)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    summed = tl.zeros([ROWS, WIDTH], tl.float32)
    for block in range(low, high, BLOCK):
        index = block + tl.arange(0, BLOCK)
        k = tl.load(
            keys + base + index[None, :] * width + at[:, None], (index < high)[None, :] & inside[:, None], 0.0
        )
        v = tl.load(
            values + base + index[:, None] * width + at[None, :], (index < high)[:, None] & inside[None, :], 0.0
        )
        score = tl.dot(q, k, input_precision="ieee") * scale
        if CAPPED:  # softcap and the scale are in units of log2 e
            score = softcap * 1.4426950408889634 * (1 - 2 / (tl.exp2(2 * score / softcap) + 1))
        distance = (start + token)[:, None] - index[None, :]
        visible = (distance >= 0) & (index < high)[None, :]
        if WINDOWED:
            visible = visible & (distance < window)
        score = tl.where(visible, score, float("-inf"))
        new_top = tl.maximum(top, tl.max(score, 1))
        safe = tl.where(new_top == float("-inf"), 0.0, new_top)
        fade = tl.exp2(top - safe)
        weight = tl.exp2(score - safe[:, None])
        total = total * fade + tl.sum(weight, 1)
        summed = summed * fade[:, None] + tl.dot(weight.to(v.dtype), v, input_precision="ieee")
        top = new_top
    if SPLITS == 1:
        tl.store(
            out + (first + token)[:, None] * out_row + head[:, None] * out_head + at[None, :],
            (summed / total[:, None]).to(out.dtype.element_ty), real[:, None] & inside[None, :],
        )  # fmt: skip
    else:
        entry = ((tile * tl.num_programs(1) + kv) * SPLITS + split) * ROWS + row
        tl.store(partial + entry[:, None] * WIDTH + at[None, :], summed, real[:, None])
        tl.store(sums + entry, top, real)
        tl.store(sums + entries + entry, total, real)


@triton.jit
def join(
    partial, sums, out, tile_row, tile_count, out_row, out_head, width, group, entries,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, SPLITS: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """A program a tile, kv head and row."""
    follow(CHAINED)
    tile, kv, row = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    token = row // group
    if token >= tl.load(tile_count + tile):
        return
    split = tl.arange(0, SPLITS)
    entry = ((tile * tl.num_programs(1) + kv) * SPLITS + split) * ROWS + row
    top = tl.load(sums + entry)
    share = tl.exp2(top - tl.max(top, 0))
    total = tl.sum(tl.load(sums + entries + entry) * share, 0)
    at = tl.arange(0, WIDTH)
    summed = tl.sum(tl.load(partial + entry[:, None] * WIDTH + at[None, :]) * share[:, None], 0)
    place = out + (tl.load(tile_row + tile) + token) * out_row + (kv * group + row % group) * out_head + at
    tl.store(place, (summed / total).to(out.dtype.element_ty), at < width)


@triton.jit
def linear(
    x, weight, bias, out, count, width, depth,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, BIASED: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """A program some columns of the output. Its first weights come into the cache before x is there."""
    row = tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    at = tl.arange(0, DEPTH)
    from_row = x + row[:, None] * depth
    from_column = weight + column[None, :].to(tl.int64) * depth
    real, there = (row < count)[:, None], (column < width)[None, :]
    if CHAINED:
        lines = tl.minimum(tl.arange(0, DEPTH // 64) * 64, depth - 1)[:, None]
        address = tl.where(there, from_column + lines, weight).to(tl.uint64, bitcast=True)
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [address], dtype=tl.int32, is_pure=False, pack=1
        )
    follow(CHAINED)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for begin in range(0, depth, DEPTH):
        inside = begin + at < depth
        a = tl.load(from_row + begin + at[None, :], real & inside[None, :], 0.0)
        w = tl.load(from_column + begin + at[:, None], there & inside[:, None], 0.0, eviction_policy="evict_first")
        total = tl.dot(a, w, total, input_precision="ieee")
    if BIASED:
        total += tl.load(bias + column, column < width, 0.0).to(tl.float32)[None, :]
    place = out + row[:, None] * width + column[None, :]
    tl.store(place, total.to(out.dtype.element_ty), real & there)
