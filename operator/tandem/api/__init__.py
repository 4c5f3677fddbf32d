"""The resource `SpeculativeInferenceService`: its types and the CRD made from them."""

GROUP = "serving.tandem.dev"
VERSION = "v1alpha1"
KIND = "SpeculativeInferenceService"
PLURAL = "speculativeinferenceservices"
API_VERSION = f"{GROUP}/{VERSION}"
