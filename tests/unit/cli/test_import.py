"""`tandem import`: a start of vLLM's server in, a resource out; what cannot be imported, with the exact message."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from support.goldens import check
from tandem.cli import app
from tandem.engines.vllm.names import arguments
from tandem.engines.vllm.serve.flags import LISTS, NOT_MAPPED, SHORT, SWITCHES
from tandem.engines.vllm.serve.parse import parse
from tandem.engines.vllm.versions import MINORS

DATA = Path(__file__).parents[2] / "data"
CASES: dict[str, Any] = yaml.safe_load((DATA / "input/import/cases.yaml").read_text(encoding="utf-8"))


def imported(*words: str, given: str | None = None) -> Result:
    return CliRunner().invoke(app, ["import", *words], input=given)


def options(case: Any) -> list[str]:
    return ["--profile", case["profile"]] if isinstance(case, dict) and "profile" in case else []


def text(case: Any) -> str:
    if isinstance(case, str):
        return case
    return str(case["command"]) if "command" in case else yaml.safe_dump(case)


def test_golden() -> None:
    """Each passes `tandem validate`, and no secret is printed."""
    made = {}
    for name, case in CASES.items():
        done = imported(*options(case), "-", given=text(case))
        assert done.exit_code == 0, f"{name}: {done.output}"
        made[f"{name.replace(',', '').replace(' ', '-')}.yaml"] = done.stdout
        assert "secret-" not in done.output
        assert "hf_secret" not in done.output
    check(DATA / "output/import", made)


REFUSED = {
    "nothing of it": ("echo hello", "there is no start of vLLM's server: give `vllm serve MODEL ...`"),
    "several": ("vllm serve a/b; vllm serve c/d", "vLLM's server is started 2 times: give one of them"),
    "quotes": ("vllm serve a/b --x 'c", "the command line cannot be read (No closing quotation): close its quotes"),
    "no model": ("vllm serve --max-model-len 4096", "the command names no model: give `vllm serve MODEL ...`"),
    "no organisation": ("vllm serve gpt2", "the model: 'gpt2' is no model that the resource can name: give ORG/NAME"),
    "a variable for a model": ("vllm serve $MODEL", "the command names no model"),
    "a worker": ("vllm serve a/b --nnodes 2 --node-rank 1", "give the one of node rank 0"),
    "headless": ("vllm serve a/b --headless", "give the one of node rank 0"),
    "no JSON": ("vllm serve a/b --hf-overrides {a:1}", "--hf-overrides is no JSON"),
    "no value": (
        "vllm serve a/b --max-model-len",
        "vllm serve would refuse the command line: argument --max-model-len",
    ),
    "a stray word": ("vllm serve a/b c", "'c' belongs to no flag"),
    "no method": ("vllm serve a/b -sc '{\"num_speculative_tokens\": 2}'", "--speculative-config has no method"),
}


@pytest.mark.parametrize(("command", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(command: str, message: str) -> None:
    done = imported(command)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr


def test_words_behind_dashes_a_file_and_a_name(tmp_path: Path) -> None:
    file = tmp_path / "start.sh"
    file.write_text("#!/bin/bash\nvllm serve org/target --max-num-seqs 8\n", encoding="utf-8")
    words = imported("--name", "mine", "--", "vllm", "serve", "org/target", "--max-num-seqs", "8")
    assert words.exit_code == 0
    assert yaml.safe_load(words.stdout)["metadata"]["name"] == "mine"
    assert words.stdout == imported("--name", "mine", str(file)).stdout


def test_what_the_operator_refuses_is_said_below_the_resource() -> None:
    done = imported("vllm serve org/target --max-num-seqs 2000")
    assert done.exit_code == 1
    assert yaml.safe_load(done.stdout)["spec"]["serving"] == {"maxBatchSize": 2000}
    assert "target.maxBatchSize" not in done.stderr
    assert "2000 is not allowed: write a whole number from 1 to 1024" in done.stderr


def test_a_profile_needs_vllm() -> None:
    done = imported("--profile", "trtllm-26.07", "vllm serve org/target")
    assert done.exit_code == 1
    assert "there is no profile 'trtllm-26.07' with vLLM: those with it are vllm-cpu, vllm-26.08" in done.stderr


def test_an_argument_of_another_version_is_not_mapped() -> None:
    done = imported("vllm serve org/target --max-num-seqs 4 --watchdog-config '{}'")
    assert "--watchdog-config: vLLM 0.27 has no such flag: it is in 0.33: give a --profile with that" in done.stdout


def test_tables_of_flags_agree() -> None:
    assert not SWITCHES & LISTS
    every = set().union(*map(arguments, MINORS))
    assert SHORT.keys() <= every | NOT_MAPPED.keys()
    found = parse(["org/model", *(word for name in sorted(every - SWITCHES) for word in (f"--{name}", "1"))])
    assert found.keys() == {"model_tag", *every} - SWITCHES, "each argument of a version is a flag"
