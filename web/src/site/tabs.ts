// Pages behind tabs: one is shown, arrow keys go from one to the next.
import { element } from "../page/dom";

export interface Tab {
  readonly id: string;
  readonly label: string;
  /** Called when the tab is first shown. */
  readonly build: () => readonly Node[];
}

export function tabs(
  label: string,
  all: readonly Tab[],
  first: string | null,
  change: (id: string) => void,
): HTMLElement {
  const panels = all.map((tab) => {
    const attributes = { id: `panel-${tab.id}`, role: "tabpanel", "aria-labelledby": `tab-${tab.id}`, hidden: true };
    return element("div", { class: "content-part", ...attributes });
  });
  const heads = all.map((tab) =>
    element(
      "button",
      { id: `tab-${tab.id}`, type: "button", role: "tab", "aria-controls": `panel-${tab.id}` },
      tab.label,
    ),
  );
  const show = (shown: number) => {
    heads.forEach((head, i) => {
      head.setAttribute("aria-selected", String(i === shown));
      head.tabIndex = i === shown ? 0 : -1;
    });
    panels.forEach((panel, i) => (panel.hidden = i !== shown));
    const panel = panels[shown];
    if (panel && !panel.hasChildNodes()) panel.append(...(all[shown]?.build() ?? []));
  };
  const choose = (index: number) => {
    show(index);
    change(all[index]?.id ?? "");
  };
  heads.forEach((head, i) => head.addEventListener("click", () => choose(i)));
  const list = element("div", { class: "tabs", role: "tablist", "aria-label": label }, ...heads);
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    const next = (heads.indexOf(event.target as HTMLButtonElement) + step + heads.length) % heads.length;
    heads[next]?.focus();
    choose(next);
  });
  show(
    Math.max(
      0,
      all.findIndex((tab) => tab.id === first),
    ),
  );
  return element("div", { class: "content-part" }, list, ...panels);
}
