// Everything a page knows comes through here: the arena's JSON interface, or the files of a static export.
import { setClock } from "./clock";

const meta = (name: string) => document.querySelector<HTMLMetaElement>(`meta[name="palus-${name}"]`)?.content;
const base = meta("data") ?? "/api/arena";

/** A static export has files where the arena has an interface: nothing is live, nothing can be asked that is not there. */
export const isExport = !base.startsWith("/api/");

/** Who answers, as a sentence begins with it. */
const host = base === "/api/watch" ? "palus watch" : "The arena";

/** By environment, the models that an export holds comparisons of. */
const compared = JSON.parse(meta("compared") ?? "{}") as Partial<Record<string, readonly string[]>>;

/** Those of these models that can be compared with each other here. */
export function comparable(env: string, ...repos: string[]): string[] {
  return isExport ? repos.filter((repo) => compared[env]?.includes(repo)) : repos;
}

/** status: of HTTP; 0 when no answer came. */
export class LoadError extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

/** Path below the data folder; the parts are names, which may hold any character. */
export function path(...parts: string[]): string {
  return parts.map(encodeURIComponent).join("/");
}

/** The JSON at a path such as `leaderboard/SoccerTwos`. Throws LoadError with a sentence for the reader. */
export async function load<T>(where: string): Promise<T> {
  const read = (response: Response) => response.json() as Promise<T>;
  if (isExport) return request(`${base}/${where}.json`, read);
  const askedMs = Date.now();
  const told = (response: Response) => {
    setClock(response.headers.get("date"), askedMs);
    return read(response);
  };
  // Going back, a browser would take the answer of back then out of its cache.
  return request(`${base}/${where}`, told, { cache: "no-cache" });
}

export async function loadBytes(url: string): Promise<Uint8Array<ArrayBuffer>> {
  return new Uint8Array(await request(url, (response) => response.arrayBuffer()));
}

export function replayUrl(match: string): string {
  return isExport ? `${base}/${path("matches", match)}.match` : `${base}/${path("matches", match, "replay")}`;
}

export function downloadUrl(env: string, file: string): string {
  return `${base}/${path("downloads", env, file)}`;
}

export const eventsUrl = `${base}/events`;

/** The bytes that the server makes when it is asked to do something. */
export async function ask(where: string): Promise<Uint8Array<ArrayBuffer>> {
  return new Uint8Array(await request(`${base}/${where}`, (response) => response.arrayBuffer(), { method: "POST" }));
}

async function request<T>(url: string, read: (response: Response) => Promise<T>, options: RequestInit = {}): Promise<T> {
  let response: Response | null = null;
  try {
    response = await fetch(url, options);
    if (response.ok) return await read(response);
  } catch {
    const fault = response ? "The answer broke off, or is not palus's." : `${host} does not answer. Is it running?`;
    throw new LoadError(`${fault} Try again in a moment.`, 0);
  }
  throw new LoadError(await faultOf(response), response.status);
}

async function faultOf(response: Response): Promise<string> {
  if (isExport && response.status === 404) return "This copy of the arena does not hold that page.";
  const fallback = `${host} answered with status ${response.status}.`;
  try {
    const body: unknown = await response.json();
    const fault = typeof body === "object" && body !== null && "error" in body ? body.error : null;
    return typeof fault === "string" ? fault : fallback;
  } catch {
    return fallback;
  }
}
