// What happens in the arena while a page is open, by server-sent events.
import { eventsUrl, isExport } from "./data";
import type { Event } from "../api";

const TYPES = ["match", "rating", "entry"] as const;
/** Ratings may change many times a second; a page follows at a pace that people can read. */
const PACE_MS = 1500;

/** Calls `handle` for every event while the page is in front; `connected` tells whether events arrive. */
export function listen(handle: (event: Event) => void, connected: (on: boolean) => void): void {
  if (isExport) return;
  let source: EventSource | null = null;
  const close = () => {
    source?.close();
    source = null;
    connected(false);
  };
  const open = () => {
    if (source) return;
    source = new EventSource(eventsUrl);
    source.addEventListener("open", () => connected(true));
    source.addEventListener("error", () => connected(false));
    for (const type of TYPES) {
      source.addEventListener(type, (message) => handle(JSON.parse(message.data as string) as Event));
    }
  };
  // A browser keeps few connections to one server: a tab that nobody sees gives its own back.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
  if (!document.hidden) open();
}

/** Runs `task` soon after it is asked for, at most once per PACE_MS and never twice at the same time. */
export function paced(task: () => Promise<void>): () => void {
  let waiting = false;
  let running = false;
  let again = false;
  const run = async () => {
    waiting = false;
    running = true;
    try {
      await task();
    } finally {
      running = false;
      if (again) {
        again = false;
        ask();
      }
    }
  };
  const ask = () => {
    if (running) again = true;
    else if (!waiting) {
      waiting = true;
      window.setTimeout(() => void run(), PACE_MS);
    }
  };
  return ask;
}
