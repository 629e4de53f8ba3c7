"""What the pages of one run and one Trial say, as text: everything that has to be known to judge a figure."""

from __future__ import annotations

import dataclasses
import html
import re

import pytest
from evidence_story import evidence, shop_story


@pytest.fixture
def read(workspace):
    """The words of a page."""
    client = workspace.browser(workspace.a, "viewer")

    def words(path):
        answer = client.get(path)
        assert answer.status_code == 200, answer.text
        main = answer.text.partition("<main")[2]
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", main)).split())

    return words


def test_pass_rates_stand_with_n_c_coverage_threshold_and_interval(story, read):
    playing = story.played(
        evidence(1.0),
        evidence(1.0),
        evidence(0.15, category="partial"),
        evidence(0.0),
        evidence(None, category="env_setup"),
    )
    text = read(f"/runs/{playing.run_id}")
    assert "n, scored 4" in text
    assert "c, passed 2" in text
    assert "Coverage 80 %" in text
    assert "Passes from reward 1" in text
    assert re.search(r"95 % interval \(Wilson\) 15 % to 85 %", text)
    assert "pass@k 50 % 83.3 % 100 % 100 % none" in text
    assert "pass^k 50 % 16.7 % 0 % 0 % none" in text
    assert "Estimator: unbiased" in text


def test_a_run_of_which_less_than_half_was_scored_decides_nothing(story, read):
    lost = [evidence(None, category="provider_error")] * 3
    undecided = story.played(evidence(1.0), evidence(1.0), *lost)
    text = read(f"/runs/{undecided.run_id}")
    assert "Coverage 40 % indecisive" in text
    assert "pass@k 100 % 100 % none none none" in text
    assert "indecisive" not in read(f"/runs/{story.played(*[evidence(1.0)] * 3, *lost[:2]).run_id}")


def test_every_tab_of_a_trial_shows_what_it_is_named_after(story, read):
    trial = shop_story(story).trials[0]
    assert "opened the shop placed ORD-8841" in read(f"/trials/{trial}?tab=log")
    turns = read(f"/trials/{trial}?tab=turns")
    assert "1 chat 00ans000 12 7 0.25 stop" in turns
    forest = read(f"/trials/{trial}?tab=forest")
    assert "branch 1" in forest
    assert "branch 2" in forest
    assert "say 0 <b>please</b>" in forest
    assert "7 tokens, stop" in forest
    stages = read(f"/trials/{trial}?tab=stages")
    assert "stage_inventory 1" in stages
    assert "stage_checkout 0" in stages
    assert "trial-1-trajectory.json" in read(f"/trials/{trial}?tab=artifacts")
    assert "Tokens in, out 420, 96" in forest
    assert "Seconds 12.5" in forest
    assert "prepare 0.60 s agent 10.20 s reward 1.70 s" in forest


def test_a_reward_out_of_range_is_counted_where_one_exports(story, read):
    whole = evidence(None, stages={"stage_inventory": 1})
    outside = dataclasses.replace(
        whole, verdict=dataclasses.replace(whole.verdict, reward_status="out_of_range", raw_reward="1.2")
    )
    playing = story.played(outside, evidence(1.0), evidence(1.0), evidence(1.0), evidence(1.0))
    assert "1 left out had a reward outside 0 to 1" in read(f"/environments/{story.environment_id}")
    assert "Reward none, 1.2 is outside 0 to 1" in read(f"/trials/{playing.trials[0]}")
    assert "n, scored 4" in read(f"/runs/{playing.run_id}")
