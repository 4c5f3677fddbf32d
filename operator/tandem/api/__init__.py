"""The resource `SpeculativeInferenceService`: its types, and the CRD and docs/api.md made from them.

Imports nothing of Tandem; every package may import it.
"""

GROUP = "serving.tandem.dev"
VERSION = "v1alpha1"
KIND = "SpeculativeInferenceService"
PLURAL = "speculativeinferenceservices"
API_VERSION = f"{GROUP}/{VERSION}"
