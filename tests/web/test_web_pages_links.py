"""Links that lead into a page, and the policy that watches over all of them, in a real browser."""

from __future__ import annotations

import pytest
from evidence_story import evidence
from playwright.sync_api import expect

from conftest import PASSWORD


@pytest.fixture
def visitor(workspace, visit):
    signed_in = visit()
    signed_in.sign_in(workspace.person(workspace.a, "member"), PASSWORD)
    return signed_in


def test_a_run_is_reset_from_the_page_of_its_environment(story, visitor):
    playing = story.played(*[evidence(1.0)] * 5)
    page = visitor.open(f"/environments/{story.environment_id}")
    page.get_by_role("link", name="Reset run").click()
    dialog = page.get_by_role("dialog", name="Run again on the same version")
    expect(dialog).to_be_visible()
    page.get_by_label("New workspace").check()
    dialog.get_by_role("button", name="Reset").click()
    page.wait_for_url(lambda url: "/runs/" in url and str(playing.run_id) not in url)
    expect(page.locator(".facts").first).to_contain_text("new workspace of")


@pytest.mark.parametrize(
    "markup",
    [
        "<img src='/static/icon.svg' onload='document.title = 1'>",
        "<p style='color: red'>x</p>",
        "<img src='https://elsewhere.example/x.png'>",
    ],
    ids=["inline script", "inline style", "something from elsewhere"],
)
def test_the_browser_of_these_tests_notices_what_the_policy_forbids(visitor, markup):
    page = visitor.open("/environments")
    assert visitor.wrong == []
    with page.expect_console_message(lambda message: "policy violated" in message.text):
        page.evaluate("markup => document.body.insertAdjacentHTML('beforeend', markup)", markup)
    assert any("policy violated" in wrong for wrong in visitor.wrong)
    page.close()
    visitor.wrong.clear()
