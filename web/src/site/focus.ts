// Keeps the reader's place when a part of the page is built anew under it.

/** Where the link leads that has the focus, if it is in there. */
export function focusedLink(part: Element): string | null {
  const { activeElement } = document;
  return part.contains(activeElement) ? (activeElement?.getAttribute("href") ?? null) : null;
}

/** Gives the focus to the link that leads there; nothing happens when there is none. */
export function focusLink(part: Element, href: string | null): void {
  if (href !== null) part.querySelector<HTMLElement>(`a[href="${CSS.escape(href)}"]`)?.focus({ preventScroll: true });
}

/** Fills an element with this, unless it holds just this: what is taken out and put back loses the focus. */
export function put(target: Element, content: Element): void {
  if (target.firstChild !== content || target.childNodes.length !== 1) target.replaceChildren(content);
}
