// Entry of the page that holds its replay: finds it there, or waits for one to be dropped, and starts the viewer.
import "./page/base.css";
import { castRays } from "./game/rays";
import { sceneAt } from "./game/scene";
import { element } from "./page/dom";
import { hashLink } from "./page/link";
import { mountReplay, showMessage } from "./page/mount";
import type { Viewer } from "./page/viewer";

declare global {
  interface Window {
    /** For scripts that look at the page: what it shows, and what an agent (counted from 0) senses at this moment. */
    palus?: { viewer: Viewer; rays(agent: number): ReturnType<typeof castRays> };
  }
}

const root = element("div", { class: "palus" });
document.body.append(root);

async function open(file: Uint8Array<ArrayBuffer>): Promise<void> {
  const solid = window.palusSolid;
  const loadSolid = solid ? () => Promise.resolve(solid) : null;
  const viewer = await mountReplay(root, file, { link: hashLink(), loadSolid, embedded: false });
  if (viewer === null) return;
  const { replay } = viewer;
  document.title = replay.title;
  const rays = (agent: number) => castRays(replay.pitch, sceneAt(viewer.view.match, viewer.view.player.tick), agent);
  window.palus = { viewer, rays };
  if (new URLSearchParams(location.search).has("autoplay")) viewer.togglePlay();
}

const inlined = document.getElementById("replay")?.textContent?.trim();
if (inlined) {
  void open(Uint8Array.from(atob(inlined), (character) => character.charCodeAt(0)));
} else {
  showMessage(root, "Drop a *.match file here to watch it.", "status");
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    const file = event.dataTransfer?.files[0];
    if (file) void file.arrayBuffer().then((buffer) => open(new Uint8Array(buffer)));
  });
}
