"""What must not reach a condition or an Event: secrets in the text that a pod wrote. Pure.

Who may read a service may not read Secrets. A secret is known by its form, or by the name before it: one without
either is not recognized.
"""

import re

HIDDEN = "[hidden]"
_FORMS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"  # PEM
    r"|\beyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)?"  # JSON Web Tokens, so those of ServiceAccounts
    r"|\b(?:hf_|nvapi-|sk-|ghp_|gho_|github_pat_|glpat-|xox[abp]-)[\w-]{8,}"  # Hugging Face, NVIDIA, OpenAI, ...
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{12,}",  # AWS
    re.DOTALL,
)
_USER = re.compile(r"(?<=://)[^/\s@]+(?=@)")
"""Name and password in a URL."""
_NAMED = re.compile(
    r"""
    (?<![\w.-])
    (?!(?:[a-z]+_)*(?:eos|bos|pad|unk|mask|sep|cls|image|end|stop)_token)  # tokenizers' special tokens
    (
        (?:sig|[\w.-]*(?:token|secret|password|passwd|api[_-]?key|access[_-]?key|credential|signature|authorization))
        ["']?\s*[:=]\s*["']?
    )
    (?:(?:bearer|basic)\s+)?
    [^\s"',;&]+
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""HF_TOKEN=…, "password": "…", Authorization: Bearer …, X-Amz-Signature=…"""


def redacted(text: str) -> str:
    """`text` with what looks like a secret hidden."""
    return _NAMED.sub(rf"\g<1>{HIDDEN}", _USER.sub(HIDDEN, _FORMS.sub(HIDDEN, text)))
