// Entry: finds the replay in the page, or waits for one to be dropped, and starts the viewer.
import "./style.css";
import { castRays } from "./game/rays";
import { sceneAt } from "./game/scene";
import { element } from "./page/dom";
import { Viewer } from "./page/viewer";
import { decodeReplay, ReplayError } from "./replay/decode";

declare global {
  interface Window {
    /** For scripts that look at the page: what it shows, and what an agent (0 to 3) senses at this moment. */
    palus?: { viewer: Viewer; rays(agent: number): ReturnType<typeof castRays> };
  }
}

const root = element("div", { class: "palus" });
document.body.append(root);

function showMessage(text: string, role: "status" | "alert"): void {
  root.replaceChildren(element("p", { class: "message", role }, text));
}

async function open(file: Uint8Array<ArrayBuffer>): Promise<void> {
  showMessage("Opening the replay …", "status");
  try {
    const viewer = new Viewer(root, await decodeReplay(file));
    document.title = viewer.replay.title;
    const rays = (agent: number) => castRays(sceneAt(viewer.view.match, viewer.view.player.tick), agent);
    window.palus = { viewer, rays };
    if (new URLSearchParams(location.search).has("autoplay")) viewer.togglePlay();
  } catch (error) {
    if (!(error instanceof ReplayError)) throw error;
    showMessage(error.message, "alert");
  }
}

const inlined = document.getElementById("replay")?.textContent?.trim();
if (inlined) {
  void open(Uint8Array.from(atob(inlined), (character) => character.charCodeAt(0)));
} else {
  showMessage("Drop a *.match file here to watch it.", "status");
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    const file = event.dataTransfer?.files[0];
    if (file) void file.arrayBuffer().then((buffer) => open(new Uint8Array(buffer)));
  });
}
