"""The page as a person uses it: with a mouse, with the keyboard, with a screen reader's eyes."""

import re

import pytest

from ui.axe import violations
from ui.browser import Browser
from ui.site import MARKUP, Load, Site

TAB, ENTER = "\ue004", "\ue007"
PROMPT = "def fibonacci(n):"
NUMBER = re.compile(r"\d")
TOTALS = re.compile(r"(\d+) of (\d+) draft tokens accepted .*, (\d+) refused")
# What is struck through is no part of the completion.
WITHOUT_REFUSED = """
const copy = document.querySelector('.completion').cloneNode(true);
copy.querySelectorAll('del').forEach((each) => each.remove());
return copy.textContent
"""
BARS = "return document.querySelectorAll('tbody .bars .share').length >= 2"
REFRESH = "document.dispatchEvent(new Event('visibilitychange'))"
ANSWERS = "return performance.getEntriesByType('resource').filter((e) => e.name.endsWith('/api/services')).length"


def sign_in(browser: Browser, token: str = "ann") -> None:
    browser.write("#token", token)
    browser.click("button[type=submit]")


def signed_in(browser: Browser, token: str = "ann") -> None:
    sign_in(browser, token)
    browser.find("main table")


def refresh(browser: Browser) -> None:
    before = browser.run(ANSWERS)
    browser.run(REFRESH)
    browser.wait("an answer", lambda: browser.run(ANSWERS) > before)


def open_quickstart(browser: Browser) -> None:
    signed_in(browser)
    browser.click("a[href='#/default/quickstart']")
    browser.find("#prompt")


def cell(browser: Browser, row: int, column: int) -> str:
    return browser.text(f"tbody tr:nth-child({row}) > :nth-child({column})")


def test_a_token_that_the_cluster_does_not_know(browser: Browser) -> None:
    sign_in(browser, "mallory")
    browser.wait("a refusal", lambda: "not valid" in browser.text("[role=alert]"))
    assert browser.run("return sessionStorage.length") == 0


def test_the_token_stays_in_the_tab_until_the_user_signs_out(browser: Browser) -> None:
    signed_in(browser)
    assert browser.run("return [localStorage.length, document.cookie, sessionStorage.length]") == [0, "", 1]
    assert browser.text("#user") == "ann"
    browser.click("#sign-out")
    browser.find("#token")
    assert browser.run("return sessionStorage.length") == 0


def test_services_that_the_user_may_read(browser: Browser) -> None:
    signed_in(browser)
    assert browser.run("return [...document.querySelectorAll('tbody a')].map((a) => a.text)") == [
        "quickstart",
        "llama-70b",
        "code-draft",
    ]
    assert [browser.text(f"tbody tr:nth-child({i}) .pill") for i in (1, 2, 3)] == [
        "Ready",
        "PodUnschedulable",
        "ScaledToZero",
    ]
    browser.click("#sign-out")
    signed_in(browser, "bob")
    assert browser.run("return [...document.querySelectorAll('tbody a')].map((a) => a.text)") == ["code-draft"]
    browser.run("location.hash = '#/default/quickstart'")
    browser.wait("a refusal", lambda: 'User "bob" cannot get' in browser.text())


def test_figures_of_pods_under_load(browser: Browser, site: Site) -> None:
    signed_in(browser)
    with Load(site, [PROMPT, "class Stack:"]):

        def shown() -> bool:
            refresh(browser)
            return bool(NUMBER.search(cell(browser, 1, 10))) and browser.run(BARS)

        browser.wait("figures in the list", lambda: shown() and float(cell(browser, 1, 5)) > 1)
        browser.click("a[href='#/default/quickstart']")

        def drawn() -> bool:
            refresh(browser)
            return bool(browser.run("return document.querySelectorAll('.spark .line').length >= 4"))

        browser.wait("lines of the last minutes", drawn)
    speed = browser.run("return document.querySelector('svg.spark').getAttribute('aria-label')")
    assert re.match(r"Tokens a second over \d+ min: now [\d,]+, [\d,]+ to [\d,]+$", speed), speed
    assert "quickstart-server-7f4b" in browser.text()


def test_what_a_condition_holds_is_text(browser: Browser) -> None:
    signed_in(browser)
    browser.click("a[href='#/team-b/code-draft']")
    browser.wait("the message", lambda: MARKUP in browser.text())
    assert browser.run("return document.title") == "code-draft · Tandem"
    assert browser.run("return document.querySelectorAll('main img').length") == 0


def test_conditions_say_what_to_do(browser: Browser) -> None:
    signed_in(browser)
    browser.click("a[href='#/team-a/llama-70b']")
    browser.wait("the advice", lambda: "→ Compare `placement` and requests with the nodes" in browser.text())
    assert "Not here: you may not create" in browser.text()


def test_a_completion_is_the_targets_own_and_shows_what_the_draft_guessed(browser: Browser, site: Site) -> None:
    open_quickstart(browser)
    alone = site.complete(PROMPT, 64, 0)
    for drafts, coloured in (("4", True), ("0", False)):
        browser.write("#tokens", "64")
        browser.write("#drafts", drafts)
        browser.click("form button[type=submit]")
        browser.wait("the end", lambda: "ended by length" in browser.text("form [role=status]"))
        assert browser.run(WITHOUT_REFUSED) == alone
        struck = browser.run("return [...document.querySelectorAll('.completion del')].map((e) => e.textContent)")
        assert all(re.fullmatch(r" \[refused: .+\] ", each) for each in struck), struck
        guessed = browser.run("return [...document.querySelectorAll('.completion .draft')].map((e) => e.textContent)")
        assert bool(guessed) is coloured
        totals = TOTALS.search(browser.text("form [role=status]"))
        assert bool(totals) is bool(struck) is coloured
        if totals:
            accepted, drafted, refused = map(int, totals.groups())
            assert 0 < accepted == drafted - refused
    assert browser.run("return document.querySelector('.completion').getAttribute('aria-busy')") == "false"


def test_a_completion_can_be_stopped(browser: Browser) -> None:
    open_quickstart(browser)
    browser.write("#tokens", "2000")
    browser.click("form button[type=submit]")
    browser.wait("the first text", lambda: browser.text(".completion"))
    browser.click("#stop")
    browser.wait("the stop", lambda: browser.text("form [role=status]") in ("stopped",))
    assert browser.run("return document.querySelector('form button[type=submit]').disabled") is False


def test_to_leave_ends_the_completion(browser: Browser, site: Site) -> None:
    site.stall()
    open_quickstart(browser)
    browser.click("form button[type=submit]")
    browser.wait("the first text", lambda: browser.text(".completion"))
    assert site.completions == 1
    browser.click("#sign-out")
    browser.find("#token")
    browser.wait("its end", lambda: site.completions == 0)


def test_a_lost_connection_and_its_return(browser: Browser, site: Site) -> None:
    signed_in(browser)
    port = site.close()
    browser.run(REFRESH)
    browser.wait("the loss", lambda: browser.text("#freshness").startswith("Connection lost: trying again"))
    assert browser.run("return document.querySelector('#announcement').textContent") == "Connection lost"
    assert "quickstart" in browser.text(), "what was there stays"
    site.reopen(port)
    browser.wait("the return", lambda: browser.run(REFRESH) or browser.text("#freshness").startswith("Live"))


def test_figures_that_grow_old(browser: Browser, site: Site) -> None:
    signed_in(browser)
    browser.wait("figures", lambda: site.board.rounds >= 2)
    site.stop_rounds()
    site.board.clock = lambda: (site.board._posted_at or 0.0) + 50
    refresh(browser)
    browser.wait("the warning", lambda: browser.text("#freshness").startswith("Figures are old"))


def test_with_the_keyboard_alone(browser: Browser) -> None:
    browser.find("#token")
    browser.run("document.querySelector('#token').value = 'ann'")
    assert browser.run("return document.activeElement.id") == "token", "one can type at once"
    browser.press(ENTER)
    browser.find("main table")
    for _ in range(12):
        browser.press(TAB)
        if browser.run("return document.activeElement.text") == "quickstart":
            break
    outline = browser.run("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focus can be seen"
    refresh(browser)
    assert browser.run("return document.activeElement.text") == "quickstart", "a refresh takes no focus away"
    browser.press(ENTER)
    browser.find("#prompt")
    assert browser.run("return document.activeElement.tagName") == "H1", "a reader begins at the heading"


def test_nothing_comes_from_elsewhere(browser: Browser, site: Site) -> None:
    open_quickstart(browser)
    names = browser.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert names and all(name.startswith(site.url) for name in names)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(browser: Browser, scheme: str) -> None:
    browser.scheme(scheme)
    assert violations(browser) == []
    signed_in(browser)
    assert violations(browser) == []
    browser.click("a[href='#/default/quickstart']")
    browser.write("#tokens", "32")
    browser.click("form button[type=submit]")
    browser.wait("the end", lambda: "ended by" in browser.text("form [role=status]"))
    assert violations(browser) == []
