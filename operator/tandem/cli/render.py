"""`tandem render`: a resource to its children, or to the configuration of TensorRT-LLM's own tools, offline."""

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import yaml

from tandem.accept import Accepted, Refusal
from tandem.api.folders import folders
from tandem.api.roles import Role, references
from tandem.api.types import SpeculativeInferenceService
from tandem.api.wire import Object
from tandem.cli.manifests import ManifestError
from tandem.engines.tensorrt_llm.arguments import to_yaml
from tandem.rollout.offline import desired_of
from tandem.settings import Settings

Service = tuple[SpeculativeInferenceService, Accepted]


def render_manifests(services: Iterable[Service], settings: Settings) -> str:
    """The manifests of services, as the operator would apply them for new ones.

    Owner references are left out: they need the UID that the API server gives. So does the folder of a model that
    is downloaded: it is named after the content, here after its URI and revision.
    """
    manifests = [manifest for service, _ in services for manifest in children(service, settings)]
    return yaml.dump_all(manifests, Dumper=Dumper, sort_keys=False, width=110)


# kubectl's YAML reads digests such as 0123456789 and 12e3456789 as numbers, which PyYAML would leave bare.
_NUMBER = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9]*)?([eE][-+]?[0-9]+)?")


class Dumper(yaml.CSafeDumper):
    """For reading, and for diffs: texts as blocks of lines, and everything written out where it stands."""

    def ignore_aliases(self, data: Any) -> bool:
        """No anchors."""
        return True


def _text(dumper: Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if _NUMBER.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Dumper.add_representer(str, _text)


def children(service: SpeculativeInferenceService, settings: Settings) -> list[Object]:
    """The children of a new service. Raises ManifestError."""
    desired = desired_of(service, settings)
    if isinstance(desired, Refusal):
        raise ManifestError(f"{service.name}: {desired.reason}: {desired.message}")
    return list(desired.all)


class TrtllmConfig(NamedTuple):
    """What TensorRT-LLM's own tools take of a service."""

    text: str
    """The file for `--config`."""
    commands: Sequence[tuple[str, str]]
    """What each does, and the command: downloads first."""


def trtllm_config(services: list[Service]) -> TrtllmConfig:
    """The file that `trtllm-serve --config` and `trtllm-bench --config` take, and the commands that use it.

    The model is an argument of these tools, so it is not in the file, where it would win over the argument. Models
    of the Hugging Face hub keep their name, since the tools know it; those that we mount have their folder in our
    containers, and s3:// and gs:// stay as they are: download them first. The target's revision is an argument, too.
    Of a draft the LLM API takes none: one of a revision is downloaded first, and the file names its folder.

    Raises:
        ManifestError: several services, mode BLS, or a drafter, which is no data.
    """
    if len(services) != 1:
        raise ManifestError(f"--trtllm-config is for one service, and the file has {len(services)}")
    (service, accepted) = services[0]
    spec = service.spec
    sources = references(spec)
    names = {role: source.uri.removeprefix("hf://") for role, source in sources.items()}
    pinned = {role: _Pinned(names[role], source.revision) for role, source in sources.items() if source.revision}
    target = pinned.pop(Role.TARGET, None)
    fetched = names | {role: download.folder for role, download in pinned.items()}
    args = accepted.engine.serve_arguments(spec, folders(spec, fetched))
    if args is None:
        raise ManifestError(
            f"{service.name}: trtllm-serve and trtllm-bench run TensorRT-LLM's LLM API: write runtime.mode: LLMAPI"
            " and a profile with TensorRT-LLM"
        )
    if spec.speculation.user_provided:
        raise ManifestError(f"{service.name}: the drafter of decodingType UserProvided is Python, not configuration")
    model = args.pop("model")
    return TrtllmConfig(to_yaml(args), _commands(model, target, pinned.values()))


class _Pinned(NamedTuple):
    """A model of the Hugging Face hub at a revision."""

    name: str
    revision: str

    @property
    def folder(self) -> str:
        """Where it is downloaded to."""
        return re.sub(r"[^\w.-]", "-", f"{self.name}-{self.revision}")

    @property
    def download(self) -> list[str]:
        """The command."""
        return ["hf", "download", self.name, "--revision", self.revision, "--local-dir", self.folder]


def _commands(model: str, target: _Pinned | None, downloads: Iterable[_Pinned]) -> list[tuple[str, str]]:
    """https://nvidia.github.io/TensorRT-LLM/commands/trtllm-serve/ and trtllm-bench.html."""
    of = ["--revision", target.revision] if target else []
    serve = ["trtllm-serve", "serve", model, *of, "--config", "FILE"]
    bench = ["trtllm-bench", "--model", model, *of, "throughput", "--dataset", "DATASET", "--config", "FILE"]
    first = [("download first", each.download) for each in downloads]
    every = [*first, ("serve it with", serve), ("measure it with", bench)]
    return [(what, shlex.join(words)) for what, words in every]
