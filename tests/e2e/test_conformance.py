"""`tandem conformance` as a user runs it, by a service's name: through kubectl, on a real kubelet.

In mode LLMAPI: test_llmapi.py.
"""

import json
from pathlib import Path

import tandem

from .conformance import by_name
from .conftest import Site


def test_mode_bls(site: Site, tmp_path: Path) -> None:
    # A call that a busy machine answers too late is a failure that is counted: not each time.
    for tried in range(3):
        code, report = by_name(site, tmp_path / f"report-{tried}", "quickstart", "--minutes", "0.01")
        if code == 0:
            break
    assert {case["case"]: case["outcome"] for case in report["cases"]} == dict.fromkeys(
        ["exact-4", "sampled", "cancels", "soak", "health"], "verified"
    )
    assert code == 0
    assert report["tandem"] == tandem.__version__
    assert report["service"]["profile"] == "reference"
    assert report["versions"]["triton"].startswith("2.")
    assert report["pods"]["pods"] == 1
    (image,) = report["pods"]["images"]
    assert "@sha256:" in image
    assert report["node"]["kubelet"].startswith("v1.")
    cases = {case["case"]: case for case in report["cases"]}
    assert "their sequences are gone" in cases["cancels"]["detail"], "the pods' metrics were read"
    assert cases["health"]["detail"] == "of restarts and counters of faults"
    assert cases["health"]["figures"]["nodeMemoryMost"] > 0
    assert "quickstart" not in json.dumps(report)
