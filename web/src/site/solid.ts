// Where the site keeps the script of the 3-D view: beside the others, under a name that carries its hash.
import solidUrl from "../../build/three-view.js?url";
import { solidFrom } from "../three/contract";

export const loadSolid = solidFrom(solidUrl);
