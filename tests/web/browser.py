"""A real browser that notices whatever goes wrong on a page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
)  # fmt: skip
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
WATCH = """
document.addEventListener("securitypolicyviolation", (event) => {
  const { violatedDirective, blockedURI, sourceFile, lineNumber } = event;
  console.error(`policy violated: ${violatedDirective} ${blockedURI} ${sourceFile}:${lineNumber}`);
});
"""
SCREENSHOTS = os.environ.get("RELAXFORGE_SCREENSHOTS")
"""Folder for pictures of the pages; none are taken without it."""


@dataclass
class Visitor:
    """A person with a browser window. ``wrong`` collects console errors, policy violations and failed requests."""

    page: Page
    context: BrowserContext
    url: str
    wrong: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        self.page.goto(self.url + path, wait_until="load")
        return self.page

    def sign_in(self, email: str, password: str) -> None:
        """Get the cookie; the form has a test of its own."""
        answer = self.context.request.post(f"{self.url}/api/v1/sign-in", data={"email": email, "password": password})
        assert answer.ok, answer.text()

    def press(self, key: str) -> None:
        """Press a key when the page has loaded, as a person would."""
        self.page.wait_for_load_state("load")
        self.page.keyboard.press(key)

    def violations(self) -> list[str]:
        """What axe finds on the page as it is now."""
        response = Axe().run(self.page).response
        return [
            f"{found['id']}: {node['html'][:160]} ({node['failureSummary'][:200]})"
            for found in response["violations"]
            for node in found["nodes"]
        ]

    def overflow(self) -> int:
        """How many pixels the page is wider than the window."""
        root = "document.documentElement"
        return int(self.page.evaluate(f"{root}.scrollWidth - {root}.clientWidth"))

    def expect_wrong(self, text: str) -> None:
        """Forget complaints with ``text``; there must have been one."""
        left = [wrong for wrong in self.wrong if text not in wrong]
        assert len(left) < len(self.wrong)
        self.wrong[:] = left

    def picture(self, name: str) -> None:
        if SCREENSHOTS:
            Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=f"{SCREENSHOTS}/{name}.png", full_page=True)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The distribution's Chromium, else Playwright's own. One per module: it occupies the thread's event loop."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Browser, workspace: Any) -> Iterator[Any]:
    """Makes visitors: ``visit(width, scheme)``; at the end nothing may have gone wrong for any of them."""
    made: list[Visitor] = []

    def make(size: dict[str, int] = WIDE, scheme: str = "light", **more: Any) -> Visitor:
        context = chromium.new_context(viewport=size, color_scheme=scheme, **more)  # type: ignore[arg-type]
        context.set_default_timeout(20_000)
        context.add_init_script(WATCH)
        page = context.new_page()
        visitor = Visitor(page, context, workspace.url)
        page.on("console", lambda message: message.type == "error" and visitor.wrong.append(message.text))
        page.on("pageerror", lambda error: visitor.wrong.append(str(error)))
        made.append(visitor)
        return visitor

    yield make
    for visitor in made:
        visitor.context.close()
    assert [wrong for visitor in made for wrong in visitor.wrong] == []
