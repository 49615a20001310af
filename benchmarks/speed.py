"""One page and one picture of all processors that were measured: results/speed.md and docs/images/speed.png.

`python benchmarks/speed.py` makes them from the stored results of throughput.py and doom_throughput.py, and measures
nothing itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import throughput_table
from doom_throughput import DOOM, PEER
from learning_curves import COLOURS
from machine import RESULTS, Json, caption, table
from palus.files import write_text
from throughput_table import NAMES, cpu_rates, pooled

PAGE, PICTURE = RESULTS / "speed.md", Path(__file__).parents[1] / "docs" / "images" / "speed.png"
FP32 = "highest"
SHADES = {"bf16": COLOURS[0], "int16": COLOURS[2], FP32: COLOURS[5]}


@dataclass(frozen=True)
class Processor:
    """name: as tables call it. training, doom: folders of its results; no second one where Doom was not measured."""

    name: str
    training: str
    doom: str = ""


PROCESSORS = (
    Processor("Intel with AVX-512, without bf16 units", "throughput-avx512", "doom-throughput-avx512"),
    Processor("EPYC with AVX2 alone", "throughput-avx2", "doom-throughput-avx2"),
    Processor("EPYC, fourth generation", "throughput-zen4", "doom-throughput-epyc"),
    Processor("EPYC, fifth generation", "throughput-zen5"),
    Processor("Intel with AMX", "throughput-amx"),
)
"""Those without bf16 units first: most laptops are."""


@dataclass(frozen=True)
class Rate:
    """What palus makes, and how many times what its rival does in turn with it."""

    rate: float
    ratio: float

    def __str__(self) -> str:
        return f"{self.rate:,.0f} ({self.ratio:.1f} x)"


def read(folder: str) -> Json:
    """The newest result in a folder below results/."""
    found: Json = json.loads(sorted((RESULTS / folder).glob("*.json"))[-1].read_text())
    return found


def training_rate(report: Json, trainer: str, path: str) -> Rate:
    """Trained agent-steps per CPU second on one thread, beside ML-Agents'."""
    rate = median(cpu_rates(pooled(report["one_thread"], trainer=trainer, path=path)))
    return Rate(rate, rate / median(cpu_rates(pooled(report["ml_agents"], trainer=trainer))))


def doom_rates(report: Json) -> tuple[Rate, Rate]:
    """Frames per second on two cores by default and in fp32 throughout, beside Sample Factory's."""
    frames: dict[str, list[float]] = {}
    for run in report["runs"]:
        if run["game"] == DOOM and run["cores"] == 2:
            frames.setdefault(run["who"], []).append(run["frames_per_s"])
    peer = median(frames[PEER])
    paths = ("bf16", "int16", "fp32, acting")
    default = next(who for path in paths for who in sorted(frames) if who.startswith(f"palus, {path}"))
    taken, exact = (Rate(median(frames[who]), median(frames[who]) / peer) for who in (default, "palus, fp32"))
    return taken, exact


def paths_of(report: Json) -> list[str]:
    """Those that are shown: what `auto` takes, what CPUs without bf16 units would, and fp32."""
    measured = {m["path"] for m in report["one_thread"]}
    return [path for path in dict.fromkeys((report["auto"], "int16", FP32)) if path in measured]


def speed_table(processors: list[tuple[Processor, Json]]) -> str:
    """A row per processor and path."""
    rows = []
    for processor, report in processors:
        taken, exact = doom_rates(read(processor.doom)) if processor.doom else ("", "")
        frames = {report["auto"]: taken, FP32: exact}
        for path in paths_of(report):
            own = [str(training_rate(report, trainer, path)) for trainer in NAMES]
            name = "fp32" if path == FP32 else path
            rows.append([f"{processor.name}: {name}", *own, str(frames.get(path, ""))])
    return table(["processor: products", *NAMES.values(), "Doom"], rows)


def run_table(processors: list[tuple[Processor, Json]]) -> str:
    """A row per processor: two threads, the start, and whole runs, by the products that `auto` takes."""
    rows = []
    for processor, report in processors:
        cells = [processor.name]
        for trainer in NAMES:
            one, two = throughput_table.on_one_and_two(report, trainer)
            cells.append(f"{two / one:.2f}")
        starts = [s["seconds"] for s in report["starts"] if (s["trainer"], s["caches"]) == ("ppo", "warm")]
        cells.append(f"{median(s['first_gradient_step'] for s in starts):.1f}")
        cells += [f"{throughput_table.whole_run_minutes(report, extras)[0]:.1f}" for extras in report["extras"]]
        rows.append(cells)
    header = ["processor", *(f"{name}: two threads to one" for name in NAMES.values()), "first training step, s"]
    return table([*header, *(f"5M steps of {name}, minutes" for name in NAMES.values())], rows)


def product_table(processors: list[tuple[Processor, Json]]) -> str:
    """A row per processor: how fast it multiplies, and the share of that which whole cycles reach."""
    rows = []
    for processor, report in processors:
        cells = [processor.name]
        for path in (FP32, report["auto"]):
            cycles = pooled(report["one_thread"], path=path)
            cells.append(f"{median(cycle['gemm_gflops'] for cycle in cycles):,.0f}")
            for trainer in NAMES:
                share = throughput_table.efficiencies(pooled(report["one_thread"], path=path, trainer=trainer))[1]
                cells.append(f"{share:.0%}")
        rows.append(cells)
    header = ["processor"]
    for products in ("fp32", "`auto`"):
        header += [f"{products}: GFLOP/s", *(f"of it in {name}" for name in NAMES.values())]
    return table(header, rows)


def page(processors: list[tuple[Processor, Json]]) -> str:
    """The whole page."""
    parts = [
        "# Speed by processor",
        "Made by `python benchmarks/speed.py` from the results of `throughput.py --peer` and `doom_throughput.py`; "
        "words and methods in `benchmarks/README.md`.",
        "PPO and MA-POCA: trained agent-steps per CPU second in the stock configuration of SoccerTwos on one thread, "
        "and how many times ML-Agents 1.1.0 that is, which computes in fp32 and whose game costs nothing. Doom: "
        "frames/s of health_gathering_supreme on two cores, and how many times Sample Factory 2.1.1 with the same "
        "network that is. The first line of a processor is what `auto` takes.",
        speed_table(processors),
        "## Runs",
        "By the products that `auto` takes. First training step: from the start of the process, with warm caches. "
        "5M steps: the stock configuration on two threads, start, checkpoints and evaluations included.",
        run_table(processors),
        "## Products",
        "How fast the processor multiplies on one thread, and the share of that which whole cycles of training reach; "
        "zeros that are skipped count as multiplied.",
        product_table(processors),
        "## Where and when",
    ]
    for processor, report in processors:
        parts.append(f"**{processor.name}** ([tables]({processor.training}/throughput.md)). {caption(report)}")
        if processor.doom:
            parts.append(f"Doom ([table]({processor.doom}/doom-throughput.md)). {caption(read(processor.doom))}")
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def draw(processors: list[tuple[Processor, Json]], picture: Path) -> None:
    """A panel for each trainer, two bars for each processor: times ML-Agents."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, panels = plt.subplots(1, len(NAMES), figsize=(9, 4.2), sharey=True, layout="constrained")
    for panel, (trainer, name) in zip(panels, NAMES.items(), strict=True):
        for row, (_, report) in enumerate(processors):
            for number, path in enumerate(paths := paths_of(report)):
                place, ratio = row + 0.27 * (number - (len(paths) - 1) / 2), training_rate(report, trainer, path).ratio
                panel.barh(place, ratio, 0.25, color=SHADES[path])
                label = "fp32" if path == FP32 else path
                panel.text(ratio + 0.1, place, f"{ratio:.1f} x {label}", va="center", fontsize=8)
        panel.axvline(1, color="0.4", linewidth=1, linestyle=(0, (4, 3)))
        panel.set(title=name, xlabel="times ML-Agents 1.1.0, per CPU second")
        panel.set_xlim(0, 1.2 * max(panel.get_xlim()[1], 1))
    panels[0].set_yticks(range(len(processors)), [processor.name.replace(", ", ",\n") for processor, _ in processors])
    panels[0].invert_yaxis()
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=150)
    plt.close(figure)


def main() -> None:
    """Read, write, draw."""
    processors = [(processor, read(processor.training)) for processor in PROCESSORS]
    write_text(PAGE, page(processors))
    draw(processors, PICTURE)
    print(f"{PAGE.read_text()}\nWritten: {PAGE} and {PICTURE}")


if __name__ == "__main__":
    main()
