// What a browser is shown where there is nothing, or where something failed. The server fills in what to say.
import { element } from "../../page/dom";
import { pageLink } from "../links";
import { buildShell, heading, placeholder } from "../shell";

const shell = buildShell(null);
const said = (name: string): string => document.querySelector<HTMLMetaElement>(`meta[name="${name}"]`)?.content ?? "";
const box = placeholder(said("palus-sentence"));
box.append(element("a", { class: "button", href: pageLink("index") }, "Leaderboard"));
shell.content.append(heading(said("palus-title")), element("section", { class: "box" }, box));
