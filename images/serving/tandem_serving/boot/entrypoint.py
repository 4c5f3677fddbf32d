"""The commands of Tandem's pods: `serve` and its startup probe `probe`; `preflight` and `build`, which are Jobs; in
groups, the containers of the other pods: `worker` with `session` (what its sshd starts), or `node` with `ranks`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    options = _parser().parse_args(arguments)
    code: int = options.run(options)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="entrypoint.py", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    serve = commands.add_parser("serve", help="assemble the model repository and run Triton")
    _revision(serve)
    serve.add_argument("--models", type=Path, default="/models", help="empty folder for the model repository")
    _termination_log(serve)
    serve.set_defaults(run=_serve)
    preflight = commands.add_parser("preflight", help="check the models; the verdict is JSON on stdout")
    _revision(preflight)
    _termination_log(preflight)
    preflight.set_defaults(run=_preflight)
    build = commands.add_parser("build", help="build a TensorRT engine into the cache; the verdict is JSON on stdout")
    _revision(build)
    _termination_log(build)
    build.add_argument("--role", required=True, help="whose engine: target or draft")
    build.add_argument("--examples", type=Path, default="/app/examples", help="TensorRT-LLM's examples in the image")
    build.set_defaults(run=_build)
    probe = commands.add_parser("probe", help="generate two tokens; exit code 0 when that works")
    probe.add_argument("--port", type=int, default=8000, help="Triton's HTTP port")
    probe.add_argument("--model", help="model to call; by default the repository's that answers one response")
    probe.add_argument("--models", type=Path, default="/models", help="the model repository")
    probe.add_argument("--timeout", type=float, default=30, help="seconds to wait")
    probe.set_defaults(run=_probe)
    _openai(commands.add_parser("openai", help="OpenAI's API in front of the pod's Triton"))
    worker = commands.add_parser("worker", help="run the ranks that the leader of this pod's group starts")
    worker.set_defaults(run=_worker)
    session = commands.add_parser("session", help="what a worker's sshd starts: the leader's daemon")
    session.add_argument("--folder", type=Path, required=True, help="the worker's working files")
    session.set_defaults(run=_session)
    for name, run, what in (
        ("node", _node, "run this pod's ranks of the group, which find the leader by themselves"),
        ("ranks", _ranks, "what a node runs: its ranks"),
    ):
        joining = commands.add_parser(name, help=what)
        _revision(joining)
        joining.add_argument("--port", type=int, default=29501, help="of the leader's ranks")
        joining.set_defaults(run=run)
    return parser


def _openai(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mode", required=True, help="BLS or LLMAPI")
    parser.add_argument("--name", required=True, help="name of the model in requests")
    parser.add_argument("--port", type=int, default=9000, help="where to listen")
    parser.add_argument("--triton-port", type=int, default=8001, help="Triton's gRPC port in this pod")
    parser.add_argument("--metrics-port", type=int, default=8002, help="port of Triton's metrics in this pod")
    parser.add_argument("--tokenizer", type=Path, default="/tokenizer", help="tokenizer and chat template")
    parser.add_argument("--keys", type=Path, help="folder with API keys; without, no key is needed")
    parser.add_argument("--tls", type=Path, help="folder with tls.crt and tls.key; without, plain HTTP")
    parser.add_argument("--max-body", type=int, default=4 << 20, help="largest body of a request, in bytes")
    parser.add_argument("--tool-calls", help="how the model writes calls of tools: Hermes, Llama3Json or Mistral")
    parser.add_argument("--thinking-begin", help="what the model writes before what it thinks, such as <think>")
    parser.add_argument("--thinking-end", help="what it writes after that, such as </think>")
    parser.add_argument("--refused", default="", help="JSON: parameters that the engine would drop, and why")
    parser.add_argument("--grace", type=int, default=600, help="seconds in which requests may end after SIGTERM")
    parser.set_defaults(run=_run_openai)


def _revision(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--revision", type=Path, default="/etc/tandem/revision", help="the mounted revision (launch.json)"
    )


def _termination_log(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--termination-log", type=Path, default="/dev/termination-log", help="also write it here")


# Each command imports its own modules: a probe every few seconds must not load tokenizers.
def _serve(options: argparse.Namespace) -> int:
    from tandem_serving.boot import launch, mpi

    try:
        return launch.serve(options.revision, options.models, options.termination_log)
    except (launch.LaunchError, mpi.GroupError) as error:
        print(f"cannot serve: {error}", file=sys.stderr)
        return 1


def _preflight(options: argparse.Namespace) -> int:
    from tandem_serving.boot import launch
    from tandem_serving.prepare import preflight

    try:
        plan = launch.read_plan(options.revision)
        text = json.dumps(preflight.verdict(plan.preflight, options.revision), ensure_ascii=False)
        options.termination_log.write_text(text, encoding="utf-8")
    except (launch.LaunchError, OSError) as error:
        print(f"cannot run the checks: {error}", file=sys.stderr)
        return 1
    print(text)
    return 0


def _build(options: argparse.Namespace) -> int:
    from tandem_serving.boot import launch
    from tandem_serving.prepare import build_progress, engine_build

    # As PID 1 there is no default: a pod that is stopped would wait for the tools.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        build = engine_build.EngineBuildPlan.parse(launch.read_plan(options.revision).builds, options.role)
        progress = engine_build.progress_of(build)
        build_progress.serve(progress)
        verdict, code = engine_build.run(options.role, build, options.examples, progress)
        text = json.dumps(verdict, ensure_ascii=False)
        options.termination_log.write_text(text, encoding="utf-8")
    except (launch.LaunchError, engine_build.BuildError, OSError) as error:
        print(f"cannot build: {error}", file=sys.stderr)
        return 1
    print(text)
    return code


def _probe(options: argparse.Namespace) -> int:
    from tandem_serving.boot import probe

    try:
        model = options.model or probe.unary_model(options.models)
        text = probe.generate(options.port, model, options.timeout)
    except probe.ProbeError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{model} generates: {text!r}")
    return 0


def _run_openai(options: argparse.Namespace) -> int:
    from tandem_serving.openai import main as openai

    return openai.run(options)


def _worker(_: argparse.Namespace) -> int:
    from tandem_serving.boot import mpi, worker

    try:
        return worker.run()
    except mpi.GroupError as error:
        print(f"cannot work: {error}", file=sys.stderr)
        return 1


def _node(options: argparse.Namespace) -> int:
    from tandem_serving.boot import launch, mpi, node

    try:
        return node.run(options.revision, options.port)
    except (launch.LaunchError, mpi.GroupError) as error:
        print(f"cannot work: {error}", file=sys.stderr)
        return 1


def _ranks(options: argparse.Namespace) -> int:
    from tandem_serving.boot import launch, mpi, node

    try:
        node.ranks(options.revision, options.port)
    except (launch.LaunchError, mpi.GroupError) as error:
        print(f"cannot work: {error}", file=sys.stderr)
        return 1


def _session(options: argparse.Namespace) -> int:
    from tandem_serving.boot import mpi, worker

    try:
        worker.session(options.folder)
    except mpi.GroupError as error:
        print(error, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
