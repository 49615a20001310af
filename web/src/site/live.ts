// What happens in the arena while a page is open, by server-sent events.
import { eventsUrl, isExport } from "./data";
import type { Event } from "../api";

const TYPES = ["match", "rating", "entry"] as const;
/** Ratings may change many times a second; a page follows at a pace that people can read. */
const PACE_MS = 1500;
/** How long a page waits that the server refused: a browser asks again by itself only where a connection broke off. */
const AGAIN_MS = 30_000;

/**
 * Calls `handle` for every event while the page is in front; `connected` tells whether events arrive. `catchUp` is
 * called when they arrive after a time without: the server tells again of matches alone, and not of all.
 */
export function listen(handle: (event: Event) => void, connected: (on: boolean) => void, catchUp: () => void): void {
  if (isExport) return;
  let source: EventSource | null = null;
  let timer = 0;
  let behind = document.hidden;
  const stopped = () => {
    behind = true;
    connected(false);
  };
  const close = () => {
    source?.close();
    source = null;
    stopped();
  };
  const open = () => {
    window.clearTimeout(timer);
    if (source || document.hidden) return;
    const opened = new EventSource(eventsUrl);
    source = opened;
    opened.addEventListener("open", () => {
      connected(true);
      if (behind) catchUp();
      behind = false;
    });
    opened.addEventListener("error", () => {
      stopped();
      if (opened.readyState !== EventSource.CLOSED) return;
      source = null;
      timer = window.setTimeout(open, AGAIN_MS);
    });
    for (const type of TYPES) {
      opened.addEventListener(type, (message) => handle(JSON.parse(message.data as string) as Event));
    }
  };
  // A browser keeps few connections to one server: a tab that nobody sees gives its own back.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
  open();
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
