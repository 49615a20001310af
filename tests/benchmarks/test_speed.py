"""The page of all processors is made of stored results and nothing else; the README shows its table."""

from __future__ import annotations

from pathlib import Path

import speed

ROOT = Path(speed.__file__).parents[1]


def stored():
    return [(processor, speed.read(processor.training)) for processor in speed.PROCESSORS]


def test_page_and_readme_say_what_is_stored():
    assert speed.PAGE.read_text() == speed.page(stored())
    assert speed.speed_table(stored()) in (ROOT / "README.md").read_text()


def test_a_rate_is_the_median_of_all_rounds_and_its_ratio_that_of_medians():
    def cycles(path, *cpu_seconds):
        timed = [{"trained_agent_steps": 12_000, "cpu_s": seconds} for seconds in cpu_seconds]
        return {"trainer": "ppo", "path": path, "cycles": timed}

    one_thread = [cycles("highest", 4.0, 3.0), cycles("int16", 9.0), cycles("highest", 2.0)]
    report = {"one_thread": one_thread, "ml_agents": [cycles("", 12.0, 30.0, 6.0)]}
    assert str(speed.training_rate(report, "ppo", "highest")) == "4,000 (4.0 x)"


def test_doom_shows_what_is_taken_by_default_and_fp32_throughout():
    def run(who, frames, cores=2, game="health_gathering_supreme"):
        return {"who": who, "frames_per_s": frames, "cores": cores, "game": game}

    runs = [run("Sample Factory 2.1.1", rate) for rate in (900.0, 1000.0, 1500.0)]
    runs += [run("palus, fp32", rate) for rate in (1900.0, 2000.0, 3000.0)]
    runs += [run("palus, fp32", 1.0, cores=1), run("palus, fp32", 1.0, game="synthetic vector game")]
    runs += [run("palus, fp32, acting in int8", 2100.0), run("palus, int16, acting in int8", 2500.0)]
    runs += [run("palus, int16, acting in int8, in turns", 2400.0)]
    assert [str(rate) for rate in speed.doom_rates({"runs": runs})] == ["2,500 (2.5 x)", "2,000 (2.0 x)"]
    without = [run for run in runs if "int16" not in run["who"]]
    assert str(speed.doom_rates({"runs": without})[0]) == "2,100 (2.1 x)"
