// A model card written by a stranger. The server has sanitised it; here it is kept in a frame of its own all the same:
// no script runs there, no form is sent, and nothing of it can lie over the page.
import { element } from "../page/dom";
import cardStyle from "./card.css?url";

/** Whose first letter says whether they are read from the right. */
const BLOCKS = "h2, h3, h4, h5, h6, p, ul, ol, blockquote, table";

export function cardFrame(html: string, title: string): HTMLElement {
  // Same origin, so that the page can measure the card; without allow-scripts the card can do nothing with that.
  const sandbox = "allow-same-origin allow-popups allow-popups-to-escape-sandbox";
  const frame = element("iframe", { class: "readme", sandbox, title, loading: "lazy" });
  const style = new URL(cardStyle, location.href).href;
  frame.srcdoc = `<!doctype html><meta charset="utf-8"><base target="_blank"><link rel="stylesheet" href="${style}"><main>${html}</main>`;
  frame.addEventListener("load", () => {
    const body = frame.contentDocument?.body;
    if (!body) return;
    for (const block of body.querySelectorAll<HTMLElement>(BLOCKS)) block.dir = "auto";
    new ResizeObserver(() => (frame.style.height = `${body.scrollHeight}px`)).observe(body);
  });
  return frame;
}
