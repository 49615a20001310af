// Makes a part of the page fill the screen, and back.
import type { Notice } from "./overlays";

export async function toggleFullscreen(root: HTMLElement, notice: Notice): Promise<void> {
  if (document.fullscreenElement) await document.exitFullscreen();
  else await root.requestFullscreen().catch(() => notice.show("This browser does not allow full screen"));
}
