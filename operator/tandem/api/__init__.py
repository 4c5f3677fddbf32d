"""The resource `SpeculativeInferenceService`: its types and CRD, and what they speak of: decoding types, roles of
models, profiles, ports and bounds. Imports nothing of Tandem; every package may import it.
"""

GROUP = "serving.tandem.dev"
VERSION = "v1alpha1"
KIND = "SpeculativeInferenceService"
PLURAL = "speculativeinferenceservices"
API_VERSION = f"{GROUP}/{VERSION}"
