// "Watch the current policy now": asks for a fresh match and shows it in the viewer.
import { element } from "../page/dom";
import type { LinkPlace } from "../page/link";
import { mountReplay } from "../page/mount";
import { ask, LoadError } from "../site/data";
import { box, field, select } from "../site/parts";
import { placeholder } from "../site/shell";
import { loadSolid } from "../site/solid";
import type { Viewer } from "../page/viewer";
import type { WatchedRun } from "../api";

/** A fresh match is kept nowhere, so no link leads to it. */
const nowhere: LinkPlace = {
  key: "match",
  read: () => new URLSearchParams(),
  write: () => undefined,
  onOpened: () => undefined,
};

/** The box of one run. It outlives the figures around it: a match goes on while the run does. */
export class MatchBox {
  readonly root: HTMLElement;
  private readonly bar = element("div", { class: "bar" });
  private readonly stage = element("section", { class: "stage-panel", "aria-label": "The match", hidden: true });
  private readonly status = element("p", { class: "note", role: "status" });
  private against = "itself";
  private offered = "";
  private viewer: Viewer | null = null;

  constructor() {
    const words = "A mirrored pair, played now by the newest policy on disk: a checkpoint's or a snapshot's.";
    this.root = box("Watch the current policy", words, this.bar, this.status, this.stage);
  }

  /** Offers whom a run's newest policy can be watched against. */
  update(run: WatchedRun): void {
    const offered = JSON.stringify([run.number, run.opponents, run.no_match]);
    if (offered === this.offered) return;
    this.offered = offered;
    if (run.no_match !== null) return this.bar.replaceChildren(placeholder("Nothing to watch", [run.no_match]));
    if (!run.opponents.some(({ word }) => word === this.against)) this.against = "itself";
    const options = run.opponents.map(({ word, label }) => [word, label] as const);
    const focused = [...this.bar.querySelectorAll("select, button")].findIndex((one) => one === document.activeElement);
    const list = select(options, this.against, (value) => (this.against = value));
    const button = element("button", { class: "button primary", type: "button" }, "Watch now");
    button.addEventListener("click", () => void this.play(run.number, button));
    this.bar.replaceChildren(field("Against", list), button);
    [list, button][focused]?.focus({ preventScroll: true });
  }

  private async play(run: number, button: HTMLButtonElement): Promise<void> {
    button.disabled = true;
    this.status.textContent = "Playing …";
    try {
      const file = await ask(`runs/${run}/match?${new URLSearchParams({ against: this.against })}`);
      const root = element("div", { class: "palus" });
      this.viewer?.close();
      this.stage.hidden = false;
      this.stage.replaceChildren(root);
      this.viewer = await mountReplay(root, file, { link: nowhere, loadSolid, embedded: true });
      this.status.textContent = this.viewer?.replay.title ?? "";
      this.viewer?.togglePlay();
    } catch (error) {
      if (!(error instanceof LoadError)) throw error;
      this.status.textContent = error.message;
    } finally {
      button.disabled = false;
    }
  }
}
