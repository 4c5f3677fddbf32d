"""What must not reach a condition or an Event: secrets in the text that a pod wrote. Pure.

Who may read a service may not read Secrets. A secret is known by its form, or by the name before it: one without
either is not recognized.
"""

import re

HIDDEN = "[hidden]"
_FORMS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"  # PEM
    r"|\beyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)?"  # JSON Web Tokens, so those of ServiceAccounts
    r"|\b(?:hf_|api_org_|npm_|r8_|gsk_|gh[oprsu]_)[A-Za-z0-9]{16,}"  # Hugging Face, GitHub, ...; not hf_quant_config
    r"|\b(?:nvapi-|sk-|github_pat_|dckr_pat_|dop_v1_|pypi-AgE|[rs]k_(?:live|test)_)[\w-]{8,}"  # NVIDIA, OpenAI, ...
    r"|\b(?:xox[abceoprs]|xapp|gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent))-[\w-]{8,}"  # Slack, GitLab
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{12,}"  # AWS
    r"|\bAIza[\w-]{16,}|\bya29\.[\w-]{16,}|\bGOCSPX-[\w-]{8,}"  # Google
    r"|(?<![\w.~-])[\w.~-]{3}\dQ~[\w.~-]{8,}"  # secrets of Microsoft Entra's applications
    r"|\bhv[bs]\.[\w-]{8,}",  # Vault
    re.DOTALL,
)
_USER = re.compile(r"(?<=://)[^/\s@]+(?=@)")
"""Name and password in a URL."""
_BEARER = re.compile(r"(\bbearer\s+)(?=[\w.~+/-]*\d)[\w.~+/-]{16,}=*", re.IGNORECASE)
"""A token without its header's name: with a digit, which words have not."""
_NAMED = re.compile(
    r"""
    (?<![\w.-])
    (?!  # tokens of a model
        (?:--)?(?:[a-z]+[_-])*(?:eos|bos|pad|unk|mask|sep|cls|image|end|stop|next|last|first|draft)[_-]token
    )
    (
        (?:
            sig|[\w.-]*(?:token|secret|password|passwd|passphrase|credential|signature|authorization)
            |[\w.-]*(?:api|access|account|private|signing|encryption|subscription|functions)[_-]?key
            |[\w.-]*pwd(?![\\"']*\s*[:=]\s*[\\"']*/)  # not PWD=/folder
        )
        (?:\\?["'])?\s*[:=]\s*(?:\\?["'])?
        |--[\w-]*(?:token|secret|password|passwd|passphrase|[_-]key)["']?,?[ ]+["']?
    )
    (?:(?:bearer|basic)\s+)?
    (?:(?<=")[^"\\\n]+|(?<=')[^'\\\n]+|[^\s"',;&\\]+)
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""HF_TOKEN=…, "password": "…", Authorization: Bearer …, X-Amz-Signature=…, AccountKey=…, --token …"""


def redacted(text: str) -> str:
    """`text` with what looks like a secret hidden."""
    plain = _USER.sub(HIDDEN, _FORMS.sub(HIDDEN, text))
    return _NAMED.sub(rf"\g<1>{HIDDEN}", _BEARER.sub(rf"\g<1>{HIDDEN}", plain))
