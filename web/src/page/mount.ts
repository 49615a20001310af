// Shows a replay in an element of any page: "opening", then the viewer, or why there is nothing to see.
import { decodeReplay, ReplayError } from "../replay/decode";
import { element } from "./dom";
import { Viewer, type ViewerOptions } from "./viewer";
import "./viewer.css";

/** A message in the place of the viewer. role: "alert" is read out at once. */
export function showMessage(root: HTMLElement, text: string, role: "status" | "alert"): void {
  root.classList.add("palus");
  root.replaceChildren(element("p", { class: "message", role }, text));
}

/**
 * file: the bytes of a *.match file, or their promise (a download). Returns the viewer; null when the replay cannot be
 * shown, the reason then being on the page.
 */
export async function mountReplay(
  root: HTMLElement,
  file: Uint8Array<ArrayBuffer> | Promise<Uint8Array<ArrayBuffer>>,
  options: ViewerOptions,
): Promise<Viewer | null> {
  showMessage(root, "Opening the replay …", "status");
  try {
    return new Viewer(root, await decodeReplay(await file), options);
  } catch (error) {
    if (!(error instanceof ReplayError)) throw error;
    showMessage(root, error.message, "alert");
    return null;
  }
}
