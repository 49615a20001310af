"""The tables of throughput.py: from the result file to Markdown, and nothing else."""

from __future__ import annotations

from statistics import median

from machine import Json, caption, table

NAMES = {"ppo": "PPO", "poca": "MA-POCA"}


def markdown(report: Json) -> str:
    """All tables of a result."""
    parts = [
        "# Throughput",
        "Made by `python benchmarks/throughput.py` from the JSON file beside it; words and methods in "
        "`benchmarks/README.md`.",
        caption(report),
        "## One thread, CPU time",
        cpu_table(report),
        cpu_notes(report),
    ]
    if report["two_cores"]:
        parts += ["## Two cores, wall time", wall_table(report)]
    parts += ["## From the start of the process", start_table(report)]
    parts += ["## A whole run", *(run_sentence(report, extras) for extras in report["extras"])]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def precision(report: Json, path: str) -> str:
    """What a matrix path is: one that is called medium rounds to bfloat16 on some processors and not on others."""
    entry = next(p for p in report["paths"] if p["name"] == path)
    if path in ("bf16", "int16"):
        return path
    return f"{path}, fp32" if entry["fp32"] else f"{path}, fp32 weights, products rounded"


def pooled(measurements: list[Json], **wanted: object) -> list[Json]:
    """The cycles of all measurements with these attributes."""
    return [c for m in measurements if all(m[k] == v for k, v in wanted.items()) for c in m["cycles"]]


def cpu_rates(cycles: list[Json]) -> list[float]:
    """Trained agent-steps per CPU second of each cycle."""
    return [c["trained_agent_steps"] / c["cpu_s"] for c in cycles]


def wall_rates(cycles: list[Json]) -> list[float]:
    """Trained agent-steps per second of each cycle."""
    return [c["trained_agent_steps"] / c["wall_s"] for c in cycles]


def efficiencies(cycles: list[Json]) -> tuple[float, float]:
    """Median share of the matrix-product rate that the learner reaches, and that the whole cycle does."""
    learner = median(c["update_flop"] / c["learn_cpu_s"] / c["gemm_gflops"] / 1e9 for c in cycles)
    whole = median((c["update_flop"] + c["collect_flop"]) / c["cpu_s"] / c["gemm_gflops"] / 1e9 for c in cycles)
    return learner, whole


def cpu_table(report: Json) -> str:
    """A row per trainer and matrix path, and the peer's where it was measured."""
    header = ["trained agent-steps per CPU second", "median", "best", "to ML-Agents", "products, GFLOP/s"]
    header += ["learner efficiency", "whole cycle", "simulation", "gradient error"]
    rows = []
    for trainer in dict.fromkeys(m["trainer"] for m in report["one_thread"]):
        peer = cpu_rates(pooled(report["ml_agents"], trainer=trainer))
        for path in dict.fromkeys(m["path"] for m in report["one_thread"]):
            cycles = pooled(report["one_thread"], trainer=trainer, path=path)
            rates, (learner, whole) = cpu_rates(cycles), efficiencies(cycles)
            error = max(
                m["gradient_error"] for m in report["one_thread"] if (m["trainer"], m["path"]) == (trainer, path)
            )
            rows.append(
                [
                    f"palus, {NAMES[trainer]}, {precision(report, path)}",
                    f"{median(rates):,.0f}",
                    f"{max(rates):,.0f}",
                    f"{median(rates) / median(peer):.1f} x" if peer else "",
                    f"{median(c['gemm_gflops'] for c in cycles):,.0f}",
                    f"{learner:.0%}",
                    f"{whole:.0%}",
                    f"{median(c['simulation_cpu_s'] / c['cpu_s'] for c in cycles):.1%}",
                    f"{error:.0e}",
                ]
            )
        if peer:
            figures = [f"{median(peer):,.0f}", f"{max(peer):,.0f}", "1.0 x"]
            rows.append([f"ML-Agents 1.1.0, {NAMES[trainer]}, fp32, game free of cost", *figures, *[""] * 5])
    return table(header, rows)


def cpu_notes(report: Json) -> str:
    """What a reader of the table has to know."""
    first = report["one_thread"][0]
    count = len(pooled(report["one_thread"], trainer=first["trainer"], path=first["path"]))
    left_out = {p["name"] for p in report["paths"]} - {m["path"] for m in report["one_thread"]}
    slow = f" Not run, because its products are too slow here: {', '.join(sorted(left_out))}." if left_out else ""
    return (
        f"Stock configuration, one team trained, {first['matches']} matches side by side, {first['decisions']} "
        f"decisions per rollout, {first['opponents']} opponents in play; whole cycles counted per row: {count}, after "
        f"a warm-up in each process. On one thread `auto` takes {report['auto']}.{slow}"
    )


def wall_table(report: Json) -> str:
    """Trained agent-steps per second on one and two threads."""
    rows = []
    for trainer, path in dict.fromkeys((m["trainer"], m["path"]) for m in report["two_cores"]):
        one, two = on_one_and_two(report, trainer)
        loads = [load for m in report["two_cores"] if m["trainer"] == trainer for load in m["load"]]
        name = f"{NAMES[trainer]}, {precision(report, path)}"
        rows.append([name, f"{one:,.0f}", f"{two:,.0f}", f"{two / one:.2f}", f"{min(loads):.1f} to {max(loads):.1f}"])
    return table(["trained agent-steps per second", "one thread", "two threads", "ratio", "load average"], rows)


def on_one_and_two(report: Json, trainer: str) -> tuple[float, float]:
    """Trained agent-steps per second on one thread and on two, by the path that `auto` takes."""
    one, two = (median(wall_rates(pooled(report["two_cores"], trainer=trainer, threads=threads))) for threads in (1, 2))
    return one, two


def start_table(report: Json) -> str:
    """Seconds to each milestone, medians."""
    milestones = {
        "imported": "torch and palus imported",
        "first_decision": "first decision played",
        "first_gradient_step": "first training step",
        "first_update": "first update ended",
    }
    rows = []
    for trainer, caches in dict.fromkeys((s["trainer"], s["caches"]) for s in report["starts"]):
        chosen = [s["seconds"] for s in report["starts"] if (s["trainer"], s["caches"]) == (trainer, caches)]
        figures = [f"{median(s[m] for s in chosen):.1f}" for m in milestones]
        rows.append([f"{NAMES[trainer]}, {caches} caches", *figures])
    return table(["seconds", *milestones.values()], rows)


def whole_run_minutes(report: Json, extras: Json) -> tuple[float, float]:
    """Estimated minutes of a run to its max_steps, everything included, and its trained agent-steps per second."""
    trainer, threads = extras["trainer"], 2 if report["two_cores"] else 1
    measured = report["two_cores"] or [m for m in report["one_thread"] if m["path"] == report["auto"]]
    rate = median(wall_rates(pooled(measured, trainer=trainer, threads=threads)))
    begin = median(
        s["seconds"]["first_decision"] for s in report["starts"] if (s["trainer"], s["caches"]) == (trainer, "warm")
    )
    besides = extras["checkpoints"] * extras["checkpoint_s"] + extras["evaluations"] * extras["evaluation_s"]
    return (begin + extras["max_steps"] / rate + besides) / 60, rate


def run_sentence(report: Json, extras: Json) -> str:
    """The estimate in words, with what it is made of."""
    minutes, rate = whole_run_minutes(report, extras)
    threads = 2 if report["two_cores"] else 1
    return (
        f"SoccerTwos, {extras['max_steps'] / 1e6:g}M trained steps, stock {NAMES[extras['trainer']]} configuration, "
        f"{threads} thread(s), path as `auto` chooses: **{minutes:.1f} minutes**, estimated from {rate:,.0f} trained "
        f"agent-steps per second, the start, {extras['checkpoints']} checkpoints of {extras['checkpoint_s']:.1f} s and "
        f"{extras['evaluations']} evaluations against the baselines of at most {extras['evaluation_s']:.1f} s."
    )
