"""The resource `SpeculativeInferenceService`: its types, decoding types, ports and bounds; its CRD and docs/api.md.

Imports nothing of Tandem; every package may import it.
"""

GROUP = "serving.tandem.dev"
VERSION = "v1alpha1"
KIND = "SpeculativeInferenceService"
PLURAL = "speculativeinferenceservices"
API_VERSION = f"{GROUP}/{VERSION}"
