"""The pages in a real browser, against a real server and a real database."""

from __future__ import annotations

import re

import pytest
from browser import NARROW, SCREENSHOTS, WIDE
from evidence_story import SHOP, evidence, shop_story, steps, training_story
from playwright.sync_api import expect

PASSWORD = "a password for tests"
BOTH = [(WIDE, "light"), (NARROW, "dark")]
ALL = [*BOTH, (WIDE, "dark"), (NARROW, "light")]


@pytest.fixture
def signed_in(workspace, visit):
    """A visitor who has signed in."""

    def make(role="owner", **more):
        visitor = visit(**more)
        visitor.sign_in(workspace.person(workspace.a, role), PASSWORD)
        return visitor

    return make


def pages_of(story, playing, training_run):
    trial, hostile = playing.trials[0], playing.trials[3]
    tabs = ("trajectory", "log", "turns", "forest", "stages", "artifacts")
    return {
        "environments": "/environments",
        "environment": f"/environments/{story.environment_id}",
        "version": f"/environment-versions/{story.version_id}",
        "runs": "/runs",
        "run": f"/runs/{playing.run_id}",
        "trials": "/trials",
        **{f"trial-{tab}": f"/trials/{trial}?tab={tab}" for tab in tabs},
        "trial-search": f"/trials/{trial}?q=shelf",
        "trial-hostile": f"/trials/{hostile}",
        "compare": f"/compare?run={playing.run_id}",
        "capability-gap": "/capability-gap",
        "capability-gap-empty": "/capability-gap?since=2999-01-01",
        "partial-rewards": "/partial-rewards",
        "training-runs": "/training-runs",
        "training-run": f"/training-runs/{training_run}",
        "members": "/members",
        "tokens": "/tokens",
        "audit-log": "/audit-log",
        "password": "/password",
        "error": "/runs/nothing-here",
    }


@pytest.mark.parametrize(("size", "scheme"), ALL if SCREENSHOTS else BOTH)
def test_every_page_is_accessible_and_fits_its_window(story, workspace, visit, size, scheme):
    playing, training_run = shop_story(story), training_story(workspace)
    visitor = visit(size, scheme)
    visitor.open("/sign-in")
    found, wide = {"sign-in": visitor.violations()}, {"sign-in": visitor.overflow()}
    visitor.picture(f"sign-in-{size['width']}-{scheme}")
    visitor.sign_in(workspace.person(workspace.a, "owner"), PASSWORD)
    for name, path in pages_of(story, playing, training_run).items():
        visitor.open(path)
        found[name] = visitor.violations()
        wide[name] = visitor.overflow()
        visitor.picture(f"{name}-{size['width']}-{scheme}")
    visitor.expect_wrong("404")
    assert {name: problems for name, problems in found.items() if problems} == {}
    assert {name: pixels for name, pixels in wide.items() if pixels > 0} == {}


def test_dialogs_are_accessible_and_close_with_escape(story, signed_in):
    run_id = story.start()
    page = (visitor := signed_in()).open(f"/runs/{run_id}")
    for opener, name in (("Cancel", "Cancel this run"), ("Reset", "Run again on the same version")):
        page.get_by_role("button", name=opener, exact=True).click()
        expect(page.get_by_role("dialog", name=name)).to_be_visible()
        assert visitor.violations() == []
        visitor.picture(f"dialog-{opener.lower()}")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog", name=name)).to_be_hidden()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    assert visitor.violations() == []
    visitor.picture("dialog-help")


def test_a_wrong_password_says_so_and_a_one_time_password_has_to_be_replaced(workspace, signed_in, visit):
    owner = signed_in()
    page = owner.open("/members")
    page.get_by_label("Email").fill("grace@example.org")
    page.get_by_role("button", name="Add").click()
    one_time = page.locator("#one-time").inner_text()

    visitor = visit()
    page = visitor.open("/audit-log")
    page.get_by_label("Email").fill("grace@example.org")
    page.get_by_label("Password").fill("not the password")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("the email address or the password is wrong")
    visitor.expect_wrong("401")
    page.get_by_label("Password").fill(one_time)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Choose your own password")).to_be_visible()
    visitor.open("/environments")
    expect(page.get_by_role("heading", name="Choose your own password")).to_be_visible()
    page.get_by_label("Present password").fill(one_time)
    page.get_by_label("New password").fill("a much better password")
    page.get_by_role("button", name="Change it").click()
    expect(page.get_by_role("heading", name="Environments")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_a_run_page_follows_its_attempts(story, signed_in):
    run_id = story.start()
    page = signed_in().open(f"/runs/{run_id}")
    expect(page.get_by_text("No attempt has started")).to_be_visible()
    playing = story.begin(run_id)
    expect(page.locator(".tasks .chip.waiting")).to_have_count(5)
    first = playing.trials[0]
    playing.started(first)
    expect(page.locator(".tasks .chip.running")).to_have_text(re.compile("environment"))
    playing.phase(first, "agent")
    expect(page.locator(".tasks .chip.running")).to_have_text(re.compile("agent"))
    playing.finish(first, evidence(0.15, category="partial"))
    expect(page.locator(".tasks .chip.partial")).to_have_text(re.compile(r"0\.15"))
    expect(page.get_by_role("status").filter(has_text="1 of 5 attempts ended")).to_be_visible()
    for trial in playing.trials[1:]:
        playing.started(trial)
        playing.finish(trial, evidence(1.0))
    playing.end()
    expect(page.get_by_text("succeeded")).to_be_visible()
    expect(page.get_by_role("row", name="pass@k")).to_contain_text("80 %")
    expect(page.locator("#live-state")).to_have_count(0)


def test_a_live_page_that_is_refused_says_so(story, workspace, signed_in):
    run_id = story.start()
    visitor = signed_in()
    page = visitor.open(f"/runs/{run_id}")
    expect(page.locator("#live-state")).to_have_text("Live")
    visitor.context.clear_cookies()
    page.evaluate("dispatchEvent(new Event('pagehide'))")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("#live-state")).to_have_text("Not live any more: reload the page")
    visitor.expect_wrong("401")


def test_the_focus_stays_where_it_was_while_the_page_follows(story, signed_in):
    playing = story.begin(story.start())
    page = signed_in().open(f"/runs/{playing.run_id}")
    page.locator(".tasks .chip").nth(3).focus()
    playing.started(playing.trials[0])
    expect(page.locator(".tasks .chip.running")).to_have_count(1)
    assert page.evaluate("document.activeElement.id") == f"chip-{playing.trials[3]}"


def test_cancelling_asks_how_and_says_that_it_is_under_way(story, signed_in):
    playing = story.begin(story.start())
    page = signed_in().open(f"/runs/{playing.run_id}")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_label("At once").check()
    page.get_by_role("button", name="Cancel the run").click()
    expect(page.get_by_text("cancelling: at once")).to_be_visible()


def test_a_reset_makes_a_new_run_of_the_same_version_in_the_next_world(story, signed_in):
    playing = story.played(*[evidence(1.0)] * 5)
    page = signed_in().open(f"/runs/{playing.run_id}")
    page.get_by_role("button", name="Reset").click()
    page.get_by_label("New world").check()
    page.get_by_role("dialog").get_by_role("button", name="Reset").click()
    page.wait_for_url(lambda url: str(playing.run_id) not in url)
    facts = page.locator(".facts").first
    expect(facts).to_contain_text("new world of")
    expect(facts.locator("div", has_text="World seed").locator("dd")).to_have_text("1")
    expect(facts.get_by_role("link", name="version 1")).to_be_visible()


@pytest.fixture
def long_trial(story):
    """A Trial of 5,000 steps, between two short ones."""
    trail = steps(5000)
    trail[4320] = type(trail[0])(4321, "bash", "grep needle\n" + "x" * 3000, "the Needle\n" + "line\n" * 400)
    return story.played(evidence(1.0), evidence(0.0, trail=trail, category="wrong_result"), evidence(1.0))


def test_a_trial_of_5000_steps_is_read_page_by_page(long_trial, signed_in):
    page = signed_in().open(f"/trials/{long_trial.trials[1]}")
    expect(page.locator(".step")).to_have_count(50)
    expect(page.get_by_text("5,000 steps")).to_be_visible()
    page.keyboard.press("j")
    expect(page.locator("#step-1")).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.locator("#step-1")).to_be_focused()
    for _ in range(50):
        page.keyboard.press("j")
    expect(page.locator("#step-51")).to_be_focused()
    expect(page.locator("#step-100")).to_be_attached()
    page.locator("#step-100").scroll_into_view_if_needed()
    expect(page.locator("#step-150")).to_be_attached()


def test_a_link_to_a_step_opens_the_page_of_steps_that_holds_it(long_trial, signed_in):
    page = signed_in().open(f"/trials/{long_trial.trials[1]}#step-4321")
    expect(page.locator("#step-4321")).to_be_focused()
    expect(page.locator("#step-4321")).to_be_in_viewport()
    expect(page.locator("#step-1")).to_have_count(0)
    page.get_by_role("link", name="Show steps 4251 to 4300").click()
    expect(page.locator("#step-4251")).to_be_attached()
    page.evaluate("location.hash = '#step-4999'")
    expect(page.locator("#step-4999")).to_be_focused()


def test_long_text_is_folded_and_unfolds_by_button_and_by_key(long_trial, signed_in):
    page = signed_in().open(f"/trials/{long_trial.trials[1]}#step-4321")
    step = page.locator("#step-4321")
    expect(step.locator("pre.observation")).not_to_contain_text("line\n" * 50)
    step.get_by_role("button", name="of the observation").click()
    expect(step.get_by_role("button", name="of the observation")).to_have_count(0)
    assert step.locator("pre.observation").inner_text().count("line") == 400
    page.keyboard.press("e")
    expect(step.get_by_role("button")).to_have_count(0)
    assert "x" * 3000 in step.locator("pre.command").inner_text()


def test_search_looks_through_all_steps_and_leads_to_them(long_trial, signed_in):
    page = signed_in().open(f"/trials/{long_trial.trials[1]}")
    page.keyboard.press("/")
    page.keyboard.type("NEEDLE")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("2 hits of NEEDLE")
    assert "q=NEEDLE" in page.url
    expect(page.locator(".hits mark").last).to_have_text("Needle")
    page.get_by_role("link", name="Step 4321").last.click()
    expect(page.locator("#step-4321")).to_be_focused()


def test_brackets_lead_to_the_neighbours_and_keep_the_tab(long_trial, signed_in):
    page = signed_in().open(f"/trials/{long_trial.trials[1]}?tab=log")
    page.keyboard.press("]")
    page.wait_for_url(f"**/trials/{long_trial.trials[2]}?tab=log")
    page.keyboard.press("[")
    page.wait_for_url(f"**/trials/{long_trial.trials[1]}?tab=log")
    page.keyboard.press("[")
    page.wait_for_url(f"**/trials/{long_trial.trials[0]}?tab=log")


def test_what_an_agent_writes_is_text_and_never_runs(story, signed_in):
    playing = shop_story(story)
    hostile = playing.trials[3]
    visitor = signed_in()
    for path in (f"/trials/{hostile}", f"/trials/{hostile}?q=script", f"/compare?left={hostile}"):
        page = visitor.open(path)
        assert "owned" not in page.title()
        assert page.locator("#steps img, #steps script, .hits img, .hits script").count() == 0
    text = visitor.open(f"/trials/{hostile}").locator("#step-1 pre.observation").inner_text()
    assert "<script>document.title='owned'</script>" in text
    assert "red" in text
    assert "[31m" not in text
    for mark in ("⟨ESC⟩", "⟨BEL⟩", "⟨BS⟩", "⟨U+202E⟩", "⟨U+200B⟩", "\ufffd"):
        assert mark in text
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u200b]", text)


def test_a_comparison_starts_with_best_and_worst_and_jumps_to_where_they_part(story, signed_in):
    playing = story.played(
        evidence(1.0, trail=steps(150)), evidence(0.5, trail=steps(3)), evidence(0.0, trail=steps(150, differ_at=120))
    )
    page = signed_in().open(f"/compare?run={playing.run_id}")
    expect(page.get_by_role("heading", name="Left: Trial 1")).to_be_visible()
    expect(page.get_by_role("heading", name="Right: Trial 3")).to_be_visible()
    expect(page.locator(".pair")).to_have_count(50)
    page.keyboard.press("d")
    expect(page.locator("#pair-120")).to_be_focused()
    expect(page.locator("#pair-120.diverges")).to_contain_text("another action")
    expect(page.locator(".diverges")).to_have_count(1)
    page.get_by_label("Right").select_option(label="Trial 2: partial, 0.5")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("link", name="First divergence: step 4")).to_be_visible()
    assert f"right={playing.trials[1]}" in page.url


def test_capability_gap_counts_what_rows_say_and_leads_to_them(story, signed_in):
    visitor = signed_in()
    page = visitor.open("/capability-gap")
    expect(page.get_by_text("No Trial has ended yet")).to_be_visible()
    shop_story(story)
    page = visitor.open("/capability-gap")
    ours = page.locator("section", has=page.get_by_role("heading", name="Our failures"))
    expect(ours.get_by_role("row", name="worker_lost")).to_contain_text("1")
    theirs = page.locator("section", has=page.get_by_role("heading", name="The agent's failures"))
    expect(theirs.locator("tbody tr")).to_have_count(3)
    theirs.get_by_role("link", name="agent_timeout").click()
    expect(page.get_by_role("combobox", name="Failure category")).to_have_value("agent_timeout")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert "category=agent_timeout" in page.url


def test_a_stage_that_was_not_reported_is_not_a_zero(story, signed_in):
    visitor = signed_in()
    page = visitor.open("/partial-rewards")
    expect(page.get_by_text("No Trial yet")).to_be_visible()
    shop_story(story)
    page = visitor.open("/partial-rewards")
    stages = ["Reward", "stage_checkout", "stage_inventory", "stage_reserved"]
    expect(page.locator("thead").last.locator("th.number")).to_have_text(stages)
    for trial, written in (("4", ["0", "not reported", "0", "not reported"]), ("1", ["0.15", "0", "1", "1"])):
        row = page.get_by_role("row", name=f"Trial {trial}")
        expect(row.locator("td.number")).to_have_text(written)
        expect(row).to_contain_text("corner-shop, version 1, run")


def test_stages_of_a_trial_stand_in_the_order_in_which_they_are_declared(story, signed_in):
    playing = shop_story(story)
    page = signed_in().open(f"/trials/{playing.trials[1]}?tab=stages")
    names = page.locator("tbody th code").all_text_contents()
    assert names.index("stage_inventory") < names.index("stage_checkout")


def test_a_training_run_shows_its_curves_and_its_sessions(workspace, signed_in):
    run_id = training_story(workspace)
    page = signed_in().open(f"/training-runs/{run_id}")
    reward = page.get_by_role("img", name=re.compile("^Reward: rollout.raw_reward from 0 at 0"))
    expect(reward).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("^Failed Sessions per step"))).to_be_visible()
    page.get_by_role("link", name="Session 0007-1-2").click()
    expect(page.locator(".step")).to_have_count(4)


def test_a_folder_is_published_configured_run_and_offered_for_export(workspace, signed_in):
    visitor = signed_in("member")
    page = visitor.open("/environments")
    page.get_by_label("A folder with").set_input_files(SHOP)
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_text("The version is published.")).to_be_visible()
    expect(page.get_by_role("heading", name="corner-shop")).to_be_visible()
    page.get_by_label("Name").first.fill("five")
    page.get_by_label("Attempts per Task").fill("5")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_text("The evaluator configuration is stored.")).to_be_visible()
    expect(page.get_by_role("row", name="preference")).to_contain_text(
        "/api/v1/rollouts?kind=preference&environmentId="
    )
    expect(page.locator("#export-curl")).to_contain_text(f"{workspace.url}/api/v1/rollouts?kind=failed")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("heading", name=re.compile("^Run "))).to_be_visible()
    expect(page.get_by_text("queued").first).to_be_visible()


def test_a_folder_without_a_manifest_is_refused_with_the_reason(signed_in, tmp_path):
    (tmp_path / "agent.py").write_text("print(1)")
    visitor = signed_in("member")
    page = visitor.open("/environments")
    page.get_by_label("A folder with").set_input_files(tmp_path)
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("alert")).to_contain_text("there is no environment.toml")
    visitor.expect_wrong("422")


def test_exports_count_as_the_files_do(story, signed_in):
    shop_story(story)
    page = signed_in("viewer").open(f"/environments/{story.environment_id}")
    for kind, count in (("all", "6"), ("successful", "2"), ("failed", "3"), ("recovery", "1"), ("preference", "1")):
        row = page.get_by_role("row", name=re.compile(f"^{kind} "))
        expect(row.get_by_role("cell").first).to_have_text(count)
    with page.expect_download() as download:
        page.get_by_role("row", name=re.compile("^failed ")).get_by_role("link").click()
    assert download.value.suggested_filename == "agentforge-rollouts-failed.jsonl"
    assert len(download.value.path().read_text().splitlines()) == 3


def test_a_viewer_is_offered_only_what_a_viewer_may_do(story, signed_in):
    playing = shop_story(story)
    visitor = signed_in("viewer")
    page = visitor.open(f"/environments/{story.environment_id}")
    for name in ("Publish", "Run", "Create", "Store"):
        expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
    page = visitor.open(f"/runs/{playing.run_id}")
    expect(page.get_by_role("button", name="Reset")).to_have_count(0)
    page = visitor.open("/tokens")
    expect(page.get_by_role("alert")).to_contain_text("a viewer may not manage")
    visitor.expect_wrong("403")


def test_a_token_is_shown_once_and_can_be_revoked(signed_in):
    visitor = signed_in()
    page = visitor.open("/tokens")
    page.get_by_label("Name").fill("nightly export")
    page.get_by_role("button", name="Make").click()
    expect(page.locator("#new-token")).to_contain_text("rf_")
    page = visitor.open("/tokens")
    expect(page.locator("#new-token")).to_have_count(0)
    page.get_by_role("button", name="Revoke nightly export").click()
    expect(page.get_by_role("row", name="nightly export")).to_contain_text("revoked")


def test_everything_works_with_the_keyboard_alone(story, workspace, visit):
    shop_story(story)
    email = workspace.person(workspace.a, "viewer")
    visitor = visit()
    page = visitor.open("/sign-in")
    page.keyboard.type(email)
    visitor.press("Tab")
    page.keyboard.type(PASSWORD)
    visitor.press("Enter")
    expect(page.get_by_role("heading", name="Environments")).to_be_visible()
    visitor.press("j")
    visitor.press("Enter")
    expect(page.get_by_role("heading", name="corner-shop")).to_be_visible()
    visitor.press("j")
    visitor.press("Enter")
    expect(page.get_by_role("heading", name=re.compile("^Run "))).to_be_visible()
    visitor.press("j")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    visitor.press("Enter")
    expect(page.get_by_role("heading", name="Trial 3")).to_be_visible()
    visitor.press("j")
    visitor.press("j")
    expect(page.locator("#step-2")).to_be_focused()


def test_on_a_narrow_window_the_places_are_behind_a_button(story, signed_in):
    visitor = signed_in(size=NARROW)
    page = visitor.open("/environments")
    expect(page.get_by_role("link", name="Trials")).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    expect(page.get_by_role("link", name="Trials")).to_be_visible()
    assert visitor.violations() == []
    visitor.picture("menu-390")
    page.get_by_role("link", name="Trials").click()
    expect(page.get_by_role("heading", name="Trials")).to_be_visible()


def test_single_keys_can_be_switched_off(story, signed_in):
    shop_story(story)
    page = signed_in().open("/trials")
    page.keyboard.press("?")
    page.get_by_label("Single keys work on this device").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.matches('tbody a')") is False


def test_another_organization_sees_none_of_it(story, workspace, visit):
    playing = shop_story(story)
    visitor = visit()
    visitor.sign_in(workspace.person(workspace.b, "owner"), PASSWORD)
    for path in (
        f"/environments/{story.environment_id}",
        f"/environment-versions/{story.version_id}",
        f"/runs/{playing.run_id}",
        f"/trials/{playing.trials[0]}",
        f"/trials/{playing.trials[0]}/steps",
        f"/compare?left={playing.trials[0]}",
    ):
        page = visitor.open(path)
        expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    expect(visitor.open("/trials").get_by_text("No Trial yet")).to_be_visible()
    visitor.expect_wrong("404")
