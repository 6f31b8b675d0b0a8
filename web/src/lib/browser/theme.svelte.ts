import { recall, remember } from "./localStorage.ts";

export type Theme = "system" | "light" | "dark";

const system = matchMedia("(prefers-color-scheme: dark)");

class ThemeChoice {
  #choice = $state<Theme>(recall<Theme>("theme", "system"));
  #systemIsDark = $state(system.matches);

  constructor() {
    system.addEventListener("change", () => {
      this.#systemIsDark = system.matches;
      this.apply();
    });
  }

  /** What the person chose. */
  get choice(): Theme {
    return this.#choice;
  }

  set choice(theme: Theme) {
    this.#choice = theme;
    remember("theme", theme === "system" ? undefined : theme);
    this.apply();
  }

  /** What is on the screen. */
  get isDark(): boolean {
    return this.#choice === "dark" || (this.#choice === "system" && this.#systemIsDark);
  }

  apply(): void {
    document.documentElement.dataset["theme"] = this.isDark ? "dark" : "light";
    const colour = getComputedStyle(document.documentElement).getPropertyValue("--bg").trim();
    document.querySelector('meta[name="theme-color"]')?.setAttribute("content", colour);
  }
}

export const theme = new ThemeChoice();
