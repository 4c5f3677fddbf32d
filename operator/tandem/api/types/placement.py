"""Where the pods run, on which accelerators, and what of the pod the user may add to."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tandem.api.types.base import LabelKey, LabelValue, Model, Name, Passthrough, Rule

Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=32)]
UserIds = Literal["Fixed", "Platform"]
"""Who chooses the users and groups that pods run as: Tandem, or the platform."""
Annotations = Annotated[dict[LabelKey, Annotated[str, StringConstraints(max_length=4096)]], Field(max_length=32)]


class Toleration(Model):
    """A taint that the pods tolerate, as in a PodSpec."""

    key: Annotated[str, StringConstraints(max_length=317)] | None = None
    """Taint key; absent, with operator Exists, matches all."""
    operator: Literal["Equal", "Exists"] | None = None
    """Relation of key and value; Equal when absent."""
    value: LabelValue | None = None
    """Taint value that matches."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect that matches; all when absent."""
    toleration_seconds: Annotated[int, Field(ge=0)] | None = None
    """Seconds that a NoExecute taint is tolerated; for ever when absent."""


class ResourceClaim(Model):
    """Devices by dynamic resource allocation (DRA), as in a PodSpec."""

    cel = (
        Rule(
            "has(self.resourceClaimName) != has(self.resourceClaimTemplateName)",
            "write resourceClaimName or resourceClaimTemplateName, exactly one",
        ),
    )
    name: Annotated[str, StringConstraints(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """Name of the claim within the pod."""
    resource_claim_name: Name | None = None
    """A ResourceClaim that all pods share."""
    resource_claim_template_name: Name | None = None
    """A ResourceClaimTemplate from which each pod gets its own claim."""


class Gpu(Model):
    """The accelerators."""

    resource_name: Annotated[str, StringConstraints(max_length=317, pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$")] = (
        "nvidia.com/gpu"
    )
    """Extended resource to ask for; a MIG slice by its name, e.g. nvidia.com/mig-3g.40gb."""
    product: Annotated[list[Annotated[str, StringConstraints(min_length=1, max_length=63)]], Field(max_length=16)] = (
        Field(default_factory=list)
    )
    """GPU products that may serve, as in the node label nvidia.com/gpu.product, e.g. NVIDIA-H100-80GB-HBM3."""
    per_node: Annotated[int, Field(ge=1, le=64)] = 8
    """GPUs of one node; a replica that needs more runs on several."""
    memory_gib: Annotated[float, Field(ge=1, le=4096)] | None = Field(default=None, alias="memoryGiB")
    """Memory of one GPU (or slice) in GiB; absent: known from `product`. For the memory estimate."""


class Placement(Model):
    """Where the pods run."""

    strategy: Literal["Shared", "Separate"] = "Shared"
    """Shared: the draft lives on GPUs of the target. Separate (BLS): on its own, so that both compute at once."""
    gpu: Gpu = Field(default_factory=Gpu, json_schema_extra={"default": {}})
    """The accelerators."""
    resource_claims: Annotated[list[ResourceClaim], Field(max_length=8)] = Field(default_factory=list)
    """Devices by DRA instead of `gpu.resourceName`: together the claims of a pod must give the GPUs it needs."""
    node_selector: Annotated[dict[LabelKey, LabelValue], Field(max_length=32)] = Field(default_factory=dict)
    """Labels that a node must carry."""
    tolerations: Annotated[list[Toleration], Field(max_length=32)] = Field(default_factory=list)
    """Taints that the pods tolerate."""
    affinity: Passthrough | None = None
    """As in a PodSpec."""
    topology_spread_constraints: Annotated[list[Passthrough], Field(max_length=8)] = Field(default_factory=list)
    """As in a PodSpec; a constraint without labelSelector is given that of the service's own pods."""
    priority_class_name: Name | None = None
    """As in a PodSpec."""
    runtime_class_name: Name | None = None
    """As in a PodSpec."""
    scheduler_name: Name | None = None
    """As in a PodSpec."""


class ContainerTemplate(Model):
    """Additions to the container `triton`."""

    name: Literal["triton"]
    """Always triton."""
    resources: Passthrough | None = None
    """As in a Container; GPUs are added by the operator."""
    env: Annotated[list[Passthrough], Field(max_length=64)] | None = None
    """As in a Container; Tandem's own variables cannot be changed."""
    env_from: Annotated[list[Passthrough], Field(max_length=16)] | None = None
    """As in a Container."""
    volume_mounts: Annotated[list[Passthrough], Field(max_length=32)] | None = None
    """As in a Container, of volumes of this template."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """As in a Container."""


class InitContainerTemplate(Model):
    """Additions to the init container `tandem`, which copies Tandem's files into the pod."""

    name: Literal["tandem"]
    """Always tandem."""
    resources: Passthrough | None = None
    """As in a Container."""


class TemplateMetadata(Model):
    """Labels and annotations of the pods."""

    labels: Labels = Field(default_factory=dict)
    """Further labels; they never enter a selector."""
    annotations: Annotations = Field(default_factory=dict)
    """Annotations."""


class TemplateSpec(Model):
    """Fields of a PodSpec that may be added to."""

    containers: Annotated[list[ContainerTemplate], Field(max_length=1)] = Field(default_factory=list)
    """Additions to the container triton. Jobs have its variables and mounts too, and engine builds its resources."""
    init_containers: Annotated[list[InitContainerTemplate], Field(max_length=1)] | None = None
    """Additions to the init container tandem."""
    volumes: Annotated[list[Passthrough], Field(max_length=32)] | None = None
    """Volumes of the kinds configMap, secret, persistentVolumeClaim, emptyDir, ephemeral, projected,
    downwardAPI, csi and image; no host paths. Jobs have those that are no storage (persistentVolumeClaim, ephemeral
    and image are), such as certificates."""
    image_pull_secrets: Annotated[list[Passthrough], Field(max_length=8)] | None = None
    """As in a PodSpec."""


class PodTemplate(Model):
    """What the user adds to the server pods: merged as the API server merges a strategic patch."""

    metadata: TemplateMetadata | None = None
    """Labels and annotations, of the pods of Jobs too."""
    spec: TemplateSpec | None = None
    """Fields of a PodSpec."""


class JobTemplate(Model):
    """What the pods of Jobs (downloads, engine builds, checks) have beside what they need."""

    labels: Labels = Field(default_factory=dict)
    """Further labels of the pods."""
    annotations: Annotations = Field(default_factory=dict)
    """Annotations of the pods, such as sidecar.istio.io/inject: "false"."""
    env: Annotated[list[Passthrough], Field(max_length=64)] = Field(default_factory=list)
    """Variables as in a Container, such as HTTPS_PROXY."""
    env_from: Annotated[list[Passthrough], Field(max_length=16)] = Field(default_factory=list)
    """Sources of variables as in a Container. A model's own secretName comes after them, and wins."""
    ca_config_map: Name | None = None
    """ConfigMap of the service's namespace with all certificate authorities to trust, in PEM: public ones too, where
    those are asked. SSL_CERT_FILE and its like name the file."""
    ca_key: Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9._-]+$")] = "ca.crt"
    """Key of `caConfigMap`."""
    resources: Passthrough | None = None
    """Requests and limits as in a Container, of all Jobs and their init containers."""
    build_resources: Passthrough | None = None
    """The same of engine builds, over `resources`; they have those of podTemplate's container too."""
