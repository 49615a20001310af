// Addresses of the pages, on the arena's server and in a static export, and what the present address asks for.
import { comparable, isExport, path } from "./data";

export type PageName = "index" | "match" | "compare" | "matrix" | "status" | "analytics" | "room";

/** Parameters without a value are left out. */
export function pageLink(page: PageName, parameters: Record<string, string | null> = {}): string {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) if (value !== null && value !== "") query.set(key, value);
  const file = isExport ? `${page}.html` : page === "index" ? "/" : `/${page}`;
  return query.size ? `${file}?${query}` : file;
}

/** env: the game that its page opens with; by default the one that the present address asks for. */
export function modelLink(repo: string, env: string | null = parameter("env")): string {
  const query = new URLSearchParams({ ...(isExport && { repo }), ...(env !== null && { env }) });
  const page = isExport ? "model.html" : `/${path(...repo.split("/"))}`;
  return query.size ? `${page}?${query}` : page;
}

export function matchLink(id: string): string {
  return pageLink("match", { match: id });
}

/** Where two models are compared; null where a static export does not hold that. */
export function compareHref(a: string, b: string, env: string): string | null {
  return comparable(env, a, b).length < 2 ? null : pageLink("compare", { a, b, env });
}

export function parameter(name: string): string | null {
  return new URLSearchParams(location.search).get(name);
}

/** The `owner/name` that a model page shows. */
export function repoOfPage(): string {
  const asked = isExport ? parameter("repo") : null;
  return asked ?? location.pathname.split("/").filter(Boolean).map(decodeURIComponent).join("/");
}

/** Keeps the address in step with what the page shows, so that it can be shared. */
export function writeParameters(changes: Record<string, string | null>): void {
  const query = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === "") query.delete(key);
    else query.set(key, value);
  }
  history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}${location.hash}`);
}
