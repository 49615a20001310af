// The part of the view that a link carries: `#match=2&t=3.2&rays=1&swap=1&follow=1&colours=contrast`.

export interface LinkState {
  /** Counted from 1. */
  match: number;
  seconds: number;
  /** Counted from 1; null when no sensors are shown. */
  rays: number | null;
  swapped: boolean;
  follow: boolean;
  contrast: boolean;
}

export function parseLink(hash: string): LinkState {
  const values = new URLSearchParams(hash.replace(/^#/, ""));
  const number = (name: string, fallback: number): number => {
    const value = Number(values.get(name) ?? fallback);
    return Number.isFinite(value) ? value : fallback;
  };
  const rays = Math.trunc(number("rays", 0));
  return {
    match: Math.trunc(number("match", 1)),
    seconds: number("t", 0),
    rays: rays >= 1 && rays <= 4 ? rays : null,
    swapped: values.get("swap") === "1",
    follow: values.get("follow") === "1",
    contrast: values.get("colours") === "contrast",
  };
}

export function formatLink(state: LinkState): string {
  const parts = [`match=${state.match}`, `t=${Number(state.seconds.toFixed(2))}`];
  if (state.rays !== null) parts.push(`rays=${state.rays}`);
  if (state.swapped) parts.push("swap=1");
  if (state.follow) parts.push("follow=1");
  if (state.contrast) parts.push("colours=contrast");
  return `#${parts.join("&")}`;
}
