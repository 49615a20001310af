// The part of the view that a link carries, and where it stands: behind the # of a file (`#match=2&t=3.2&rays=1`) or
// among the query of a page (`?match=<id>&t=3.2&rays=1`), whose other parameters are left alone.

export interface Orbit {
  /** Degrees to the right around the ball's resting place, and above the grass. */
  readonly azimuth: number;
  readonly elevation: number;
  /** Metres. */
  readonly distance: number;
}

export interface LinkState {
  /** Of the matches in the file, counted from 1. */
  match: number;
  seconds: number;
  /** Seconds since the goal at which play rests; null when it does not. */
  celebrated: number | null;
  /** Counted from 1; null when no sensors are shown. */
  rays: number | null;
  swapped: boolean;
  follow: boolean;
  trails: boolean;
  contrast: boolean;
  /** Where the eye is in 3-D; null in 2-D. */
  orbit: Orbit | null;
}

/** Where links of a page are kept. `key`: the parameter that holds LinkState.match. */
export interface LinkPlace {
  readonly key: string;
  read(): URLSearchParams;
  write(values: URLSearchParams): void;
  /** Called when the reader opens another link on the same page, until `closed`. */
  onOpened(listener: () => void, closed: AbortSignal): void;
}

const KEYS = ["t", "after", "rays", "swap", "follow", "trails", "colours", "orbit"] as const;

export function hashLink(): LinkPlace {
  return {
    key: "match",
    read: () => new URLSearchParams(location.hash.replace(/^#/, "")),
    write: (values) => history.replaceState(null, "", `#${values}`),
    onOpened: (listener, signal) => window.addEventListener("hashchange", listener, { signal }),
  };
}

/** For a page whose query says which replay it shows. */
export function queryLink(): LinkPlace {
  const key = "part";
  return {
    key,
    read: () => new URLSearchParams(location.search),
    write(values) {
      const query = new URLSearchParams(location.search);
      for (const name of [key, ...KEYS]) query.delete(name);
      for (const [name, value] of values) if (name !== key || value !== "1") query.set(name, value);
      history.replaceState(null, "", `?${query}`);
    },
    onOpened: (listener, signal) => window.addEventListener("popstate", listener, { signal }),
  };
}

export function parseLink(values: URLSearchParams, key: string): LinkState {
  const number = (name: string, fallback: number): number => {
    const value = Number(values.get(name) ?? fallback);
    return Number.isFinite(value) ? value : fallback;
  };
  const rays = Math.trunc(number("rays", 0));
  return {
    match: Math.trunc(number(key, 1)),
    seconds: number("t", 0),
    celebrated: values.has("after") ? number("after", 0) : null,
    rays: rays >= 1 ? rays : null,
    swapped: values.get("swap") === "1",
    follow: values.get("follow") === "1",
    trails: values.get("trails") !== "0",
    contrast: values.get("colours") === "contrast",
    orbit: parseOrbit(values.get("orbit")),
  };
}

function parseOrbit(value: string | null): Orbit | null {
  const parts = (value ?? "").split("_").map(Number);
  if (value === null || parts.length !== 3 || !parts.every(Number.isFinite)) return null;
  return { azimuth: parts[0], elevation: parts[1], distance: parts[2] };
}

/** What differs from a fresh page, so that links stay short. */
export function formatLink(state: LinkState, key: string): URLSearchParams {
  const values = new URLSearchParams({ [key]: String(state.match), t: String(rounded(state.seconds, 3)) });
  if (state.celebrated !== null) values.set("after", String(rounded(state.celebrated, 2)));
  if (state.rays !== null) values.set("rays", String(state.rays));
  if (state.swapped) values.set("swap", "1");
  if (state.follow) values.set("follow", "1");
  if (!state.trails) values.set("trails", "0");
  if (state.contrast) values.set("colours", "contrast");
  if (state.orbit !== null) {
    const { azimuth, elevation, distance } = state.orbit;
    values.set("orbit", [azimuth, elevation, distance].map((part) => rounded(part, 1)).join("_"));
  }
  return values;
}

function rounded(value: number, digits: number): number {
  return Number(value.toFixed(digits));
}
