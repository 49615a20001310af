// What the pages know of the 3-D view. Its code, three.js included, is a script of its own that is loaded on request.
import type { Moment } from "../draw/renderer";
import type { Orbit } from "../page/link";

export interface SolidMoment extends Moment {
  readonly orbit: Orbit;
  /** The point of the field that the eye looks at. */
  readonly target: { readonly x: number; readonly z: number };
}

export interface SolidView {
  /** CSS pixels of the canvas and device pixels per CSS pixel. */
  resize(width: number, height: number, pixelRatio: number): void;
  draw(moment: SolidMoment): void;
  /** Gives back what it holds of the graphics card. */
  close(): void;
}

export interface SolidModule {
  /** Raises when the browser has no WebGL. */
  createView(canvas: HTMLCanvasElement): SolidView;
}

declare global {
  interface Window {
    /** Set by the script of the 3-D view. */
    palusSolid?: SolidModule;
  }
}

/** The module from a script of its own at `url`, fetched once; after a failure the next call tries again. */
export function solidFrom(url: string): () => Promise<SolidModule> {
  let loading: Promise<SolidModule> | null = null;
  const forget = (error: unknown): never => {
    loading = null;
    throw error;
  };
  return () => (loading ??= load(url).catch(forget));
}

function load(url: string): Promise<SolidModule> {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = url;
    script.addEventListener("load", () =>
      window.palusSolid ? resolve(window.palusSolid) : reject(new Error(`${url} is not the 3-D view`)),
    );
    script.addEventListener("error", () => reject(new Error(`${url} cannot be loaded`)));
    document.head.append(script);
  });
}
