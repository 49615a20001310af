// Entry of the script of the 3-D view: three.js and the stadium, for pages that load it on request.
import "./contract";
import { SolidPitch } from "./view";

window.palusSolid = { createView: (canvas) => new SolidPitch(canvas) };
