"""Key pairs: the one place where randomness is made for the cluster."""

import base64

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tandem.children.secret import PRIVATE_KEY, PUBLIC_KEY


def new_key_pair() -> dict[str, str]:
    """`data` of a Secret with a new Ed25519 key pair in OpenSSH's formats."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    pair = {PRIVATE_KEY: private, PUBLIC_KEY: public + b"\n"}
    return {name: base64.b64encode(text).decode() for name, text in pair.items()}
