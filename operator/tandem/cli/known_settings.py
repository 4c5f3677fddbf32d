"""The operator's settings, as a command on a user's machine can have them: from a file, or from the cluster."""

from collections.abc import Iterable
from pathlib import Path

from tandem.api.wire import Object
from tandem.client import kubectl
from tandem.settings import Settings, in_cluster, load_settings, parse_settings

SELECTOR = "app.kubernetes.io/name=tandem,app.kubernetes.io/component=operator"
"""Of what the chart makes for the operator."""
FILE = "settings.yaml"


async def known_settings(file: Path | None) -> Settings | None:
    """Those of `file`, else of the operator in the cluster; None where that has none that this user may read.

    Raises:
        SettingsError: they cannot be parsed.
    """
    if file:
        return load_settings(file)
    try:
        return of_operator(await kubectl.listed("configmaps", "--all-namespaces", "--selector", SELECTOR))
    except kubectl.ClusterError:
        return None


def of_operator(configmaps: Iterable[Object]) -> Settings | None:
    """The settings of the first that has any. Pure. Raises SettingsError."""
    for each in configmaps:
        text = (each.get("data") or {}).get(FILE)
        if text is not None:
            source = f"of ConfigMap {each['metadata']['namespace']}/{each['metadata']['name']}"
            return in_cluster(parse_settings(text, source))
    return None
