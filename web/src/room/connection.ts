// One match over one socket: asks for it, hands on what arrives, says what the reader does.
import type { Ready, Refused, Start } from "../api";
import type { Pitch } from "../replay/pitch";
import { decodeStep, type Choice, type Step } from "./protocol";

/** The server takes a client that says nothing for gone. */
const ALIVE_MS = 4000;

export interface Listener {
  ready(ready: Ready): void;
  step(step: Step): void;
  /** Nothing more will arrive. refused: why, unless the match was played to its end. */
  ended(refused: Refused | null): void;
}

export class Connection {
  private readonly socket: WebSocket;
  private readonly timer: number;
  private finished = false;
  private refused: Refused | null = null;
  private closed = false;

  constructor(start: Start, pitch: Pitch, listener: Listener) {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    this.socket = new WebSocket(`${scheme}//${location.host}/api/arena/room/live`);
    this.socket.binaryType = "arraybuffer";
    this.socket.addEventListener("open", () => this.socket.send(JSON.stringify(start)));
    this.socket.addEventListener("message", (event: MessageEvent<string | ArrayBuffer>) => {
      if (this.closed) return;
      if (typeof event.data !== "string") {
        const step = decodeStep(event.data, pitch);
        this.finished = step.finished;
        listener.step(step);
        return;
      }
      const message = JSON.parse(event.data) as Ready | Refused;
      if (message.type === "ready") listener.ready(message);
      else this.refused = message;
    });
    this.socket.addEventListener("close", () => {
      window.clearInterval(this.timer);
      if (this.closed) return;
      const lost: Refused = { type: "refused", code: "broken", reason: "The connection to the arena broke off." };
      listener.ended(this.finished ? null : (this.refused ?? lost));
    });
    this.timer = window.setInterval(() => this.say({ type: "alive" }), ALIVE_MS);
  }

  act(choice: Choice): void {
    this.say({ type: "act", choice });
  }

  pause(paused: boolean): void {
    this.say({ type: paused ? "pause" : "resume" });
  }

  /** The reader has no more interest; the listener hears nothing more. */
  close(): void {
    this.closed = true;
    window.clearInterval(this.timer);
    this.socket.close();
  }

  private say(message: object): void {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }
}
