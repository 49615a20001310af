// Builds elements. Text enters the page only as text nodes, so names from strangers' replays cannot become markup.

type Attributes = Record<string, string | boolean>;

export function element<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(name);
  setAttributes(made, attributes);
  made.append(...children);
  return made;
}

export function svg(name: string, attributes: Attributes, ...children: Node[]): SVGElement {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  setAttributes(made, attributes);
  made.append(...children);
  return made;
}

function setAttributes(target: Element, attributes: Attributes): void {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== false) target.setAttribute(key, value === true ? "" : value);
  }
}

/** Changes the text only when it differs: screen readers and layout are left alone otherwise. */
export function setText(target: Node, text: string): void {
  if (target.textContent !== text) target.textContent = text;
}

/** Whether the text is on the clipboard now: over plain HTTP, but for this machine, a browser has none for pages. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** 24 x 24 outlines. */
const ICONS = {
  play: "M8 5.2v13.6c0 .8.9 1.3 1.6.8l10-6.8a1 1 0 0 0 0-1.6l-10-6.8A1 1 0 0 0 8 5.2z",
  pause: "M7 5h3.4v14H7zM13.6 5H17v14h-3.4z",
  restart: "M12 5V1.6L6.8 6.2 12 10.8V7.2a5.4 5.4 0 1 1-5.3 6.6H4.4A7.6 7.6 0 1 0 12 5z",
  back: "M6 5h2.6v14H6zM19 5.6v12.8L9.6 12z",
  forward: "M15.4 5H18v14h-2.6zM5 5.6v12.8l9.4-6.4z",
  swap: "M7.5 4 3 8.5 7.5 13v-3.2H16V7.2H7.5zM16.5 11v3.2H8v2.6h8.5V20l4.5-4.5z",
  follow: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zm-1-6h2v4h-2zm0 16h2v4h-2zM2 11h4v2H2zm16 0h4v2h-4z",
  trails: "M4 17c6 0 5-9 12-9l-2-2.4 1.8-1.4L21 9l-5.2 4.8L14 12.4 16 10c-5 0-4 9-12 9z",
  rays: "M3.4 10.6 20 3l-1 2.6-11 5 12 .3v2.2l-12 .3 11 5L20 21 3.4 13.4z",
  palette:
    "M12 3a9 9 0 1 0 0 18c1.5 0 2-1 1.6-2-.5-1.4.3-2.6 1.8-2.6H18a3 3 0 0 0 3-3C21 7.5 17 3 12 3zM7.5 13a1.5 1.5 0 1 1 0-3 1.5 1.5 0 0 1 0 3zM11 8.5a1.5 1.5 0 1 1 0-3 1.5 1.5 0 0 1 0 3zM16 10.5a1.5 1.5 0 1 1 0-3 1.5 1.5 0 0 1 0 3z",
  link: "M9.5 14.5l5-5M10.5 6.5l1.8-1.8a4.2 4.2 0 0 1 6 6L16.5 12.5M13.5 17.5l-1.8 1.8a4.2 4.2 0 0 1-6-6L7.5 11.5",
  help: "M9 9.2a3 3 0 1 1 4.3 2.7c-.9.5-1.3 1-1.3 2.1M12 17.6v.2",
  solid: "M12 2.8 20 7.2v9.6l-8 4.4-8-4.4V7.2zM4 7.2l8 4.5 8-4.5M12 11.7v9.5",
  film: "M3.5 6.5h11v11h-11zM14.5 10.4l6-3.4v10l-6-3.4",
  fullscreen: "M4 9V4h5M15 4h5v5M20 15v5h-5M9 20H4v-5",
} as const;

export type IconName = keyof typeof ICONS;

const STROKED: ReadonlySet<IconName> = new Set(["link", "help", "fullscreen", "solid", "film"]);

export function icon(name: IconName): SVGElement {
  const style = STROKED.has(name) ? "stroked" : "filled";
  return svg(
    "svg",
    { viewBox: "0 0 24 24", "aria-hidden": "true", class: `icon ${style}` },
    svg("path", { d: ICONS[name] }),
  );
}

/** The teams' marks, the same shapes as on the pitch. */
export function teamMark(team: 0 | 1): SVGElement {
  const shape =
    team === 0
      ? svg("circle", { cx: "12", cy: "12", r: "7.5" })
      : svg("path", { d: "M12 2.5 21.5 12 12 21.5 2.5 12z" });
  return svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true", class: `mark team-${team}` }, shape);
}

export function formatTime(seconds: number): string {
  const tenths = Math.round(seconds * 10);
  const whole = Math.floor(tenths / 10);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}.${tenths % 10}`;
}
