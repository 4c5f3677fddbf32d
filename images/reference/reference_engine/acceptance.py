"""Which token follows a draft token whose logits are known: speculative sampling.

After Leviathan et al. 2023 (https://arxiv.org/abs/2211.17192) and Chen et al. 2023
(https://arxiv.org/abs/2302.01318): with p the target's distribution and q the one that the draft drew x from,
x is accepted with probability min(1, p(x) / q(x)), and else replaced by a draw from max(p - q, 0),
normalised. The result is distributed as p, whatever q is.

That needs the q that was drawn from: the client passes on the draft's raw generation_logits, and both they
and the target's get the request's bias, temperature, penalties, bad words, top-k and top-p. (TensorRT-LLM 1.2
takes the softmax of the draft's logits as they come: its output is the target's only where the draft samples
without any of these.) So both calls carry the same sampling parameters, but the draft's has neither end_id
nor min_tokens: it proposes k tokens always, end_id like any other. A draft that ends at an end_id that it
drew, and does not tell, leaves proposals that are not distributed as q.

The numbers are of three streams, all keyed by seed and position (`sampling.Stream`): the draft draws x with
DRAW, the target accepts with ACCEPT, replaces with RESIDUAL, and draws with DRAW the token after the last
accepted one, for which the draft drew none. Numbers for a position decide nothing before it, so that those of
a draft's rejected tokens may serve again. Which token is drawn for a seed depends on the draft lengths before
it (only the distribution does not); without draft_logits it does not.
"""

import numpy as np
import numpy.typing as npt

from reference_engine import sampling
from reference_engine.sampling import SamplingParams, Stream

FloatArray = npt.NDArray[np.float32]


def verify(target: FloatArray, draft: FloatArray, params: SamplingParams, proposed: int, position: int) -> int:
    """The token at absolute `position`: `proposed`, or what replaces it.

    `target` and `draft` are both models' processed logits float32[V] there.
    """
    if params.greedy:  # one-hot p and q: exact match
        return sampling.choose(target, params, position)
    p, q = sampling.probabilities(target, params), sampling.probabilities(draft, params)
    if sampling.uniform(params.seed, position, Stream.ACCEPT) * q[proposed] < p[proposed]:
        return proposed
    residual = np.maximum(p - q, 0)
    if not residual.any():  # p = q but for rounding
        return proposed
    return sampling.draw(residual, sampling.uniform(params.seed, position, Stream.RESIDUAL))
