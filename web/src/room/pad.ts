// A person's choices: keys that are held down, or buttons that are pressed, become the three action branches.
import { element } from "../page/dom";
import type { Choice } from "./protocol";

interface Move {
  /** Values of KeyboardEvent.code: places on the keyboard, whatever is printed on them. */
  readonly codes: readonly string[];
  readonly keys: string;
  readonly glyph: string;
  readonly name: string;
  readonly branch: 0 | 1 | 2;
  readonly value: 1 | 2;
}

/** In the order of the buttons: turning beside forward, as on the keyboard. */
export const MOVES: readonly Move[] = [
  { codes: ["KeyQ"], keys: "Q", glyph: "↺", name: "Turn left", branch: 2, value: 1 },
  { codes: ["KeyW", "ArrowUp"], keys: "W ↑", glyph: "↑", name: "Forward", branch: 0, value: 1 },
  { codes: ["KeyE"], keys: "E", glyph: "↻", name: "Turn right", branch: 2, value: 2 },
  { codes: ["KeyA", "ArrowLeft"], keys: "A ←", glyph: "←", name: "Step left", branch: 1, value: 2 },
  { codes: ["KeyS", "ArrowDown"], keys: "S ↓", glyph: "↓", name: "Backward", branch: 0, value: 2 },
  { codes: ["KeyD", "ArrowRight"], keys: "D →", glyph: "→", name: "Step right", branch: 1, value: 1 },
];

export class Pad {
  readonly root = element("div", { class: "pad-buttons", role: "group", "aria-label": "Move your player" });
  private readonly buttons: HTMLButtonElement[];
  /** Moves that are held, the latest last: it wins over its opposite. */
  private held: Move[] = [];

  /** onChange: called with the choice whenever it is another one. */
  constructor(private readonly onChange: (choice: Choice) => void) {
    this.buttons = MOVES.map((move) => this.button(move));
    this.root.append(...this.buttons);
  }

  /** Whether the key is one of the moves', and so not for anybody else. */
  key(event: KeyboardEvent, down: boolean): boolean {
    const move = MOVES.find(({ codes }) => codes.includes(event.code));
    if (move === undefined) return false;
    this.hold(move, down);
    return true;
  }

  /** Let go of everything: the window lost the keyboard, or play rests. */
  release(): void {
    this.held = [];
    this.show();
  }

  private button(move: Move): HTMLButtonElement {
    const made = element(
      "button",
      { type: "button", title: move.name, "aria-pressed": "false", tabindex: "-1" },
      element("b", { "aria-hidden": "true" }, move.glyph),
      element("span", { class: "visually-hidden" }, move.name),
      element("kbd", {}, move.keys),
    );
    made.addEventListener("pointerdown", (event) => {
      made.setPointerCapture(event.pointerId);
      event.preventDefault();
      this.hold(move, true);
    });
    for (const end of ["pointerup", "pointercancel", "lostpointercapture"] as const) {
      made.addEventListener(end, () => this.hold(move, false));
    }
    made.addEventListener("contextmenu", (event) => event.preventDefault());
    return made;
  }

  private hold(move: Move, down: boolean): void {
    if (down && this.held.at(-1) === move) return;
    this.held = this.held.filter((other) => other !== move);
    if (down) this.held.push(move);
    this.show();
  }

  private show(): void {
    const choice: [number, number, number] = [0, 0, 0];
    for (const move of this.held) choice[move.branch] = move.value;
    this.buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(this.held.includes(MOVES[i]))));
    this.onChange(choice);
  }
}
