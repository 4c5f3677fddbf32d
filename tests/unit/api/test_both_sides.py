"""What stands both here and in the images, whose programs cannot import it, is the same."""

from tandem.api import bounds, ports
from tandem.api.decoding import DecodingType
from tandem_fetcher import cli as fetcher
from tandem_serving.bls import settings
from tandem_serving.boot import entrypoint, mpi
from tandem_serving.llmapi.arguments import USER_PROVIDED

NEEDED = {"tensorrt_llm_model_name": "t", "tokenizer_dir": "/t", "target_model_path": "/t"}


def test_the_startup_probe_asks_the_port_that_triton_listens_on() -> None:
    assert entrypoint._parser().parse_args(["probe"]).port == ports.HTTP


def test_ranks_of_a_group_are_reached_over_the_port_that_is_declared() -> None:
    assert mpi.PORT == ports.SSH


def test_the_fetcher_shows_its_progress_where_the_operator_asks() -> None:
    assert fetcher._parser().parse_args(["fetch", "--uri", "hf://a/b"]).port == ports.FETCH


def test_as_many_sequences_run_in_mode_bls() -> None:
    assert settings.read(NEEDED).running == bounds.BLS_SEQUENCES


def test_a_drafter_of_the_users_is_added_under_the_names_that_are_written() -> None:
    assert DecodingType.USER_PROVIDED.traits.upstream == USER_PROVIDED
