/** How dense the app is and whether it moves, on this device. The theme is chosen in lib/browser/theme.svelte.ts. */
import "./appearance.css";
import { recall, remember } from "../lib/browser/localStorage.ts";

export type Density = "comfortable" | "compact";
export type Motion = "system" | "reduced";

class Appearance {
  #density = $state<Density>(recall<Density>("density", "comfortable") === "compact" ? "compact" : "comfortable");
  #motion = $state<Motion>(recall<Motion>("motion", "system") === "reduced" ? "reduced" : "system");

  get density(): Density {
    return this.#density;
  }

  set density(density: Density) {
    this.#density = density;
    remember("density", density === "comfortable" ? undefined : density);
    this.apply();
  }

  get motion(): Motion {
    return this.#motion;
  }

  set motion(motion: Motion) {
    this.#motion = motion;
    remember("motion", motion === "system" ? undefined : motion);
    this.apply();
  }

  /** Called once when the app starts, and after every change. */
  apply(): void {
    const { dataset } = document.documentElement;
    dataset["density"] = this.#density;
    dataset["motion"] = this.#motion;
  }
}

export const appearance = new Appearance();
