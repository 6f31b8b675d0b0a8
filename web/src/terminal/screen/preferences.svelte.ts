import { recall, remember } from "../../lib/browser/localStorage.ts";

const STORE_NAME = "terminal";
const FONT_SIZES = { least: 8, usual: 13, most: 28 } as const;

interface StoredPreferences {
  fontSize?: unknown;
  screenReader?: unknown;
}

/** How this browser shows terminals. */
class TerminalPreferences {
  #fontSize = $state<number>(FONT_SIZES.usual);
  #screenReader = $state(false);

  constructor() {
    const stored = recall<StoredPreferences>(STORE_NAME, {});
    if (typeof stored.fontSize === "number") this.#fontSize = bounded(stored.fontSize);
    this.#screenReader = stored.screenReader === true;
  }

  get fontSize(): number {
    return this.#fontSize;
  }

  set fontSize(size: number) {
    this.#fontSize = bounded(size);
    this.#keep();
  }

  get screenReader(): boolean {
    return this.#screenReader;
  }

  set screenReader(on: boolean) {
    this.#screenReader = on;
    this.#keep();
  }

  resetFontSize(): void {
    this.fontSize = FONT_SIZES.usual;
  }

  #keep(): void {
    remember(STORE_NAME, { fontSize: this.#fontSize, screenReader: this.#screenReader });
  }
}

function bounded(size: number): number {
  return Math.min(FONT_SIZES.most, Math.max(FONT_SIZES.least, Math.round(size)));
}

export const preferences = new TerminalPreferences();
