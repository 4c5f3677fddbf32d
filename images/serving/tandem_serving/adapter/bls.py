"""The speculative BLS between its settings and Triton: its engines, and the service that calls them."""

from __future__ import annotations

from functools import partial

from tandem_serving import checkpoint
from tandem_serving.adapter.canary import Canary
from tandem_serving.adapter.engine import EngineModel, JoinModel, RoundModel, StreamModel, engine_inputs
from tandem_serving.bls import abilities
from tandem_serving.bls.batches import Route
from tandem_serving.bls.draft_length.policy import AdaptiveDraftLength
from tandem_serving.bls.limits import RoundLimits
from tandem_serving.bls.request import AcceptanceMethod, BlsParser, RequestLimits
from tandem_serving.bls.service import BlsOptions, BlsService
from tandem_serving.bls.settings import BlsSettings
from tandem_serving.bls.step_limits import UNLIMITED
from tandem_serving.engine import metrics_page
from tandem_serving.engine.watch import WatchHooks
from tandem_serving.requests.tokenizer import Tokenizer


def build_service(config: BlsSettings) -> tuple[BlsService, list[EngineModel]]:
    """The service that a model configuration describes. Raises settings and checkpoint errors."""
    tokenizer = Tokenizer(config.tokenizer_dir, config.target_path)
    limits = checkpoint.read_limits(config.target_path).at_most(config.max_seq_len)
    draft_limits = (
        checkpoint.read_limits(config.draft_path).at_most(config.max_seq_len) if config.draft_path else None
    )
    target = EngineModel(config.target_model, "target", config.target_collector)
    rows = draft_limits.vocab_size if draft_limits else limits.vocab_size
    # A round in the server hands all that is drafted to the target.
    drafting = _drafting(config, whole_rounds=rows <= limits.vocab_size) if draft_limits else {}
    streams = StreamModel(config.streams_model, target)
    engines: dict[Route, EngineModel] = {"target": target, "stream": streams, **drafting}
    padded = rows != limits.vocab_size
    request_limits = RequestLimits(limits.max_sequence_len, config.max_draft_len, limits.vocab_size, padded)
    acceptance = AcceptanceMethod(config.use_draft_logits, config.acceptance_threshold)
    refused = abilities.refused(config.target_path, config.draft_path, config.fast_logits)
    parser = BlsParser(tokenizer, request_limits, acceptance, refused, config.refused)
    options = BlsOptions(
        request_timeout=config.request_timeout,
        limits=_round_limits(config, "round" in engines),
        target_limit=limits.max_sequence_len,
        draft_limit=draft_limits.max_sequence_len if draft_limits else 0,
        vocabulary=min(rows, limits.vocab_size),
        mix_seed=config.mix_seed,
        probe_share=config.probe_share,
        target=config.target_model,
        canary_seconds=config.canary_seconds,
    )
    least = config.min_draft_len if config.adaptive else config.max_draft_len
    policy = AdaptiveDraftLength(least, config.max_draft_len, config.separate_devices, config.max_rows > 1)
    service = BlsService(parser, tokenizer, engines, engine_inputs, policy, options)
    signs = partial(metrics_page.iterations, config.target_model)
    service.engine.begin(WatchHooks(Canary(target, parser), service.fail, signs))
    return service, list(engines.values())


def _drafting(config: BlsSettings, *, whole_rounds: bool) -> dict[Route, EngineModel]:
    """The draft engine, and what makes whole rounds in the server, if anything does and may."""
    engines: dict[Route, EngineModel] = {"draft": EngineModel(config.draft_model, "draft", config.draft_collector)}
    if config.rounds_model and whole_rounds:
        engines |= {"round": RoundModel(config.rounds_model), "join": JoinModel(config.rounds_model, "target")}
    return engines


def _round_limits(config: BlsSettings, whole_rounds: bool) -> RoundLimits:
    return RoundLimits(
        running=config.running,
        waiting=config.waiting,
        max_rows=config.max_rows,
        draft_timeout=config.draft_timeout,
        queue_timeout=config.queue_timeout,
        whole_rounds=config.max_draft_len if whole_rounds else 0,
        target_tokens=checkpoint.max_num_tokens(config.target_path) or UNLIMITED,
        draft_tokens=(checkpoint.max_num_tokens(config.draft_path) if config.draft_path else None) or UNLIMITED,
    )
