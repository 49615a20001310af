// Results of every team, the competition as a whole, and everything to download.
import { element } from "../../page/dom";
import { load, path } from "../data";
import { pageLink, parameter, writeParameters } from "../links";
import { competition } from "../analytics/competition";
import { downloads } from "../analytics/downloads";
import { results } from "../analytics/results";
import { chooseEnvironment, environmentField } from "../parts";
import { buildShell, fill, heading, placeholder } from "../shell";
import type { Analytics } from "../../api";
import { tabs } from "../tabs";

const shell = buildShell("analytics");
void fill(shell.content, async () => {
  const { all, env } = await chooseEnvironment();
  const title = (...beside: Node[]) =>
    heading("Analytics", "Results of every team, statistics of the competition, downloads.", ...beside);
  if (env === null) {
    const text = "Statistics start with the first match. What the arena waits for is on the page ";
    const empty = placeholder("No matches yet", [text, element("a", { href: pageLink("status") }, "Status")]);
    return [title(), element("section", { class: "box" }, empty)];
  }
  const analytics = await load<Analytics>(path("analytics", env));
  const pages = [
    { id: "results", label: "Results", build: () => results(analytics) },
    { id: "competition", label: "Competition stats", build: () => competition(analytics) },
    { id: "downloads", label: "Downloads", build: () => downloads(env) },
  ];
  const change = (id: string) => writeParameters({ tab: id === "results" ? null : id });
  return [
    title(element("div", { class: "bar" }, environmentField(all, env, "team"))),
    tabs("Parts", pages, parameter("tab"), change),
  ];
});
